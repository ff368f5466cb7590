# Runs inside the new root: the image's user, and nothing in it that no program of ours loads.
groupadd --gid 1000 ray
useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash ray
install -d -o ray -g ray /opt/rayrig
site=/opt/ray/lib/python3.13/site-packages
debian=/usr/lib/python3/dist-packages
rm -rf "$site/ray/jars" "$site/ray/llm" "$site/pyarrow/include" "$site/pyarrow/src" "$debian/pip" \
    "$debian/torch/test" "$debian/torch/include" "$debian/hypothesis" "$debian/numpy" "$site"/pyarrow/libarrow_flight* "$site"/pyarrow/_flight* "$site"/ray/rllib/examples/envs/*/assets
find "$site/ray/dashboard" -name '*.map' -delete
find "$site" "$debian" -type d -name tests -prune -exec rm -rf {} +
# Every file is linked for every node: of the 400 services that botocore describes, the image calls these.
find "$site/botocore/data" -mindepth 1 -maxdepth 1 -type d \
    ! -name s3 ! -name sts ! -name sso ! -name sso-oidc ! -name ssm ! -name ec2 -exec rm -rf {} +
# Wheels hold the same library under two names; one file serves both.
for library in "$site"/pyarrow/*.so.*00; do
    whole=$(echo "$library".*)
    if [ -f "$whole" ] && cmp -s "$library" "$whole"; then ln -sf "$(basename "$whole")" "$library"; fi
done
find "$site" -type f \( -name '*.so' -o -name '*.so.*' -o -name raylet -o -name gcs_server \) -print0 |
    xargs -0 -P "$(nproc)" -n 8 strip --strip-unneeded
rm /usr/bin/py3compile
dpkg-divert --quiet --local --rename --remove /usr/bin/py3compile
apt-get purge -y --autoremove binutils python3-venv
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/log/*.log /var/log/apt /tmp/* \
    /root/.cache /usr/share/doc /usr/share/man /usr/share/locale /usr/share/info /usr/local/lib/python3.13
find "$site" "$debian" /usr/lib/python3.13 -type d -name __pycache__ -prune -exec rm -rf {} +
# Unchecked bytecode of what a node imports: the files never change under it.
/opt/ray/bin/python -m compileall -q -j "$(nproc)" -x 'ray/(serve|rllib/examples|rllib/tuned)|sympy/|networkx/' \
    "$site" "$debian" /usr/lib/python3.13 || true
