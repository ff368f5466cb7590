"""Asks the Jobs API with the token on file, without one and with a wrong one.

Argument: {"dashboard_port", "token_path"}. Answer: the three HTTP statuses, 0 where nothing answered.
"""

import http.client
import json
import secrets
import sys
from pathlib import Path


def status(port: int, token: "str | None") -> int:
    """Status of the Jobs API's job list."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/api/jobs/", headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def main() -> None:
    """Asks three times."""
    asked = json.loads(sys.argv[1])
    right = Path(asked["token_path"]).read_text(encoding="utf-8").strip()
    port = asked["dashboard_port"]
    print(
        json.dumps(
            {
                "right": status(port, right),
                "none": status(port, None),
                "wrong": status(port, secrets.token_hex(32)),
            }
        )
    )


if __name__ == "__main__":
    main()
