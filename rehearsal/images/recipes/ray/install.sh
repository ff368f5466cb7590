# Runs inside the new root: Debian's Python and torch. What Ray on a CPU never loads is not even unpacked.
cat >/etc/dpkg/dpkg.cfg.d/rayrig-lab <<'END'
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/lib/libtorch-test/*
path-exclude=/usr/lib/x86_64-linux-gnu/libLLVM*
path-exclude=/usr/lib/x86_64-linux-gnu/libamd_comgr*
path-exclude=/usr/lib/x86_64-linux-gnu/libamdhip64*
path-exclude=/usr/lib/x86_64-linux-gnu/libhsa-runtime*
path-exclude=/usr/lib/x86_64-linux-gnu/ucx/*rocm*
path-exclude=/usr/lib/x86_64-linux-gnu/ucx/libuct_ib*
path-exclude=/usr/lib/x86_64-linux-gnu/ucx/libuct_rdmacm*
END
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
# Packages' own byte-compiling, one after the other, is most of the time; finish.sh compiles all at once.
dpkg-divert --quiet --local --rename --add /usr/bin/py3compile
ln -sf /bin/true /usr/bin/py3compile
apt-get update
# shellcheck disable=SC2086 # one word per package
apt-get install -y --no-install-recommends $PACKAGES
rm /usr/sbin/policy-rc.d
