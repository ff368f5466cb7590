#!/usr/bin/env python3
"""First boot of a node: no apt behind our back, an end by the deadline, the SSH host key published.

Standard library only. It runs as cloud-init user data, and again each minute with the argument `watch`.
"""

import datetime as dt
import hashlib
import hmac
import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

SETTINGS = json.loads("@SETTINGS@")
STATE = Path(SETTINGS["stateDir"])
UNIT = "rayrig-deadline"


def log(message: str) -> None:
    """One line for the console and cloud-init's log."""
    print(f"rayrig: {message}", flush=True)


def call(*argv: str) -> bool:
    """Runs a command and says whether it worked; a failure is logged."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        log(f"{' '.join(argv)}: no end within 60 s")
        return False
    if done.returncode:
        log(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.returncode == 0


def fetch(request: urllib.request.Request) -> bytes:
    """The answer's body."""
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - http and https only, from our settings
        return bytes(answer.read())


def metadata(path: str) -> str | None:
    """One value of the instance metadata service, version 2; None when it is not there."""
    base, ttl = SETTINGS["imdsUrl"] + "/latest/", {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
    token = fetch(urllib.request.Request(base + "api/token", method="PUT", headers=ttl)).decode()  # noqa: S310
    request = urllib.request.Request(base + path, headers={"X-aws-ec2-metadata-token": token})  # noqa: S310
    try:
        return fetch(request).decode().strip()
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return None
        raise


def read_deadline() -> dt.datetime | None:
    """The deadline of the instance's tag, else the one read last, else None."""
    known = STATE / "deadline"
    try:
        text = metadata("meta-data/tags/instance/" + SETTINGS["deadlineTag"])
        when = dt.datetime.fromisoformat(text) if text else None
    except (OSError, ValueError) as error:
        log(f"cannot read the deadline: {error}")
        when = None
    if when:
        known.write_text(when.isoformat())
    elif known.exists():
        when = dt.datetime.fromisoformat(known.read_text())
    return when


def watch() -> None:
    """Powers off when the deadline has passed, and keeps a timer set for it, wherever the tag has moved."""
    when, now = read_deadline(), dt.datetime.now(dt.UTC)
    if when is None:
        # A node that never learned its deadline would run for ever: it gets an end of its own.
        when = dt.datetime.fromisoformat((STATE / "installed").read_text()) + dt.timedelta(
            seconds=SETTINGS["graceSeconds"]
        )
        log(f"no deadline is known; without one this node ends at {when.isoformat()}")
    if when <= now:
        log(f"the deadline {when.isoformat()} has passed: powering off")
        call("systemctl", "poweroff")
        return
    armed, until_text = Path(SETTINGS["runDir"]) / "rayrig-deadline-armed", when.isoformat()
    if armed.exists():
        if armed.read_text() == until_text:
            return
        call("systemctl", "stop", f"{UNIT}-poweroff.timer")
    # A second guard, which needs neither this script nor the metadata service any more.
    utc = when.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    timer = [f"--unit={UNIT}-poweroff", f"--on-calendar={utc}", "--timer-property=AccuracySec=1s"]
    if call("systemd-run", *timer, "systemctl", "poweroff"):
        armed.write_text(until_text)
        log(f"this node ends itself at {utc}")


def install_watch() -> None:
    """Looks at the deadline now, and by a timer each minute, from the next boot on as well."""
    STATE.mkdir(parents=True, exist_ok=True)
    (STATE / "installed").write_text(dt.datetime.now(dt.UTC).isoformat())
    script, units = STATE / "boot.py", Path(SETTINGS["unitDir"])
    shutil.copyfile(__file__, script)
    (units / f"{UNIT}.service").write_text(
        "[Unit]\nDescription=rayrig: end this node at its deadline\n"
        f"[Service]\nType=oneshot\nExecStart=/usr/bin/env python3 {script} watch\n"
    )
    (units / f"{UNIT}.timer").write_text(
        "[Unit]\nDescription=rayrig: look at the deadline each minute\n"
        "[Timer]\nOnActiveSec=60\nOnUnitActiveSec=60\nAccuracySec=5\n[Install]\nWantedBy=timers.target\n"
    )
    call("systemctl", "enable", "--now", "--no-block", f"{UNIT}.timer")
    watch()


def signed_put(key: str, body: bytes, role: dict[str, str], now: dt.datetime) -> urllib.request.Request:
    """A PUT to the bucket that never overwrites, signed with the role's credentials (AWS Signature Version 4)."""
    region, bucket = SETTINGS["region"], SETTINGS["bucket"]
    if SETTINGS["endpointUrl"]:
        parsed = urllib.parse.urlsplit(SETTINGS["endpointUrl"])
        scheme, host, path = parsed.scheme, parsed.netloc, f"/{bucket}/{key}"
    else:
        scheme, host, path = "https", f"{bucket}.s3.{region}.{SETTINGS['dnsSuffix']}", f"/{key}"
    path = urllib.parse.quote(path, safe="/-_.~")
    moment, digest = now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest()
    headers = {
        "host": host,
        "if-none-match": "*",
        "x-amz-content-sha256": digest,
        "x-amz-date": moment,
        "x-amz-security-token": role["Token"],
    }
    signed = ";".join(headers)
    canonical = "\n".join(["PUT", path, "", *(f"{k}:{v}" for k, v in headers.items()), "", signed, digest])
    scope = [moment[:8], region, "s3", "aws4_request"]
    secret = ("AWS4" + role["SecretAccessKey"]).encode()
    for part in scope:
        secret = hmac.digest(secret, part.encode(), "sha256")
    text = "\n".join(["AWS4-HMAC-SHA256", moment, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()])
    signature = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    credential = f"{role['AccessKeyId']}/{'/'.join(scope)}"
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature={signature}"
    )
    # Unset, urllib would call it a form, and a server may then look for fields in it instead of a body.
    headers["content-type"] = "text/plain"
    return urllib.request.Request(f"{scheme}://{host}{path}", data=body, method="PUT", headers=headers)  # noqa: S310


def publish_host_key() -> None:
    """Puts the public host key where only this instance may write."""
    instance = metadata("meta-data/instance-id")
    profile = metadata("meta-data/iam/security-credentials/")
    if not instance or not profile:
        raise OSError("the instance has no id or no role yet")
    role = json.loads(metadata(f"meta-data/iam/security-credentials/{profile}") or "{}")
    key = SETTINGS["hostKeyObject"].replace("INSTANCE_ID", instance)
    body = Path(SETTINGS["hostKeyFile"]).read_bytes()
    try:
        fetch(signed_put(key, body, role, dt.datetime.now(dt.UTC)))
    except urllib.error.HTTPError as error:
        # 412: it is there, and nobody else may write it: an answer of ours was lost.
        if error.code != HTTPStatus.PRECONDITION_FAILED:
            raise OSError(f"S3 answered {error.code}: {error.read(300).decode(errors='replace')}") from error
    log("the host key is published")


def until(what: str, action: Callable[[], None], seconds: float) -> None:
    """Repeats an action until it works or the time is over (a new role is unknown here and there for some seconds)."""
    end, wait = time.monotonic() + seconds, 0.2
    while True:
        try:
            return action()
        except (OSError, ValueError, KeyError) as error:
            if time.monotonic() + wait > end:
                raise SystemExit(f"rayrig: {what} failed for {seconds:g} s: {error}") from error
            log(f"{what}: {error!r}; again in {wait:g} s")
        time.sleep(wait)
        wait = min(2 * wait, 5)


def main() -> None:
    """First boot, or with `watch` the look at the deadline."""
    if sys.argv[1:] == ["watch"]:
        return watch()
    install_watch()
    call("systemctl", "mask", "--now", "--no-block", "apt-daily.timer", "apt-daily-upgrade.timer")
    # Without --now: a running apt is left to finish, ending dpkg half-way breaks a node.
    call("systemctl", "mask", "apt-daily.service", "apt-daily-upgrade.service", "unattended-upgrades.service")
    return until("publishing the host key", publish_host_key, SETTINGS["publishSeconds"])


if __name__ == "__main__":
    main()
