# Runs inside the new root: the node's packages. No service may start here.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
printf 'path-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\npath-exclude=/usr/share/locale/*\n' \
    >/etc/dpkg/dpkg.cfg.d/rayrig-lab
# Packages' own byte-compiling, one after the other, is slow; finish.sh compiles all at once.
dpkg-divert --quiet --local --rename --add /usr/bin/py3compile
ln -sf /bin/true /usr/bin/py3compile
apt-get update
# shellcheck disable=SC2086 # one word per package
apt-get install -y --no-install-recommends $PACKAGES
rm /usr/sbin/policy-rc.d
