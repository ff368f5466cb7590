"""`python -m rehearsal.aws --port 0`: the rehearsal's AWS alone, without nodes; prints its URL and account as JSON."""

import argparse
import json
import secrets
import signal
import threading
from pathlib import Path

from rehearsal.aws.server import serve


def main() -> int:
    """Serves until it is told to end (SIGTERM, SIGINT)."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal.aws", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--region", default="eu-west-1", help="region of calls that name none")
    parser.add_argument("--account", default=f"0000{secrets.randbelow(10**8):08d}", help="twelve digits")
    parser.add_argument("--world", default=f"w{secrets.token_hex(4)}", help="name of the world")
    parser.add_argument("--public-cidr", default=None, help="block of the instances' public addresses")
    parser.add_argument("--request-log", type=Path, default=None, help="file for one JSON line per request")
    parser.add_argument("--weigh-policies", action="store_true", help="hold roles to their policies")
    options = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with serve(
        host=options.host,
        port=options.port,
        world_id=options.world,
        account_id=options.account,
        region=options.region,
        public_cidr=options.public_cidr,
        request_log=options.request_log,
        weigh_policies=options.weigh_policies,
    ) as server:
        print(json.dumps({"endpointUrl": server.url, "accountId": server.account_id}), flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
