# Runs inside the new root after files/ was laid over it: first-boot state, and what must not run in a container.
rm -f /etc/ssh/ssh_host_* /var/lib/dbus/machine-id /etc/cloud/cloud.cfg.d/90_dpkg.cfg /etc/hostname
: >/etc/machine-id
for unit in docker-registry.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    e2scrub_reap.service fstrim.timer ssh.socket; do
    systemctl disable "$unit" || true
done
# Real machines have consoles, device managers and network set-up; here the container's engine did all that.
for unit in systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udev-trigger.service \
    systemd-networkd.service systemd-networkd-wait-online.service systemd-networkd.socket \
    getty@tty1.service getty.target console-getty.service systemd-resolved.service systemd-timesyncd.service \
    systemd-modules-load.service systemd-sysctl.service sys-kernel-debug.mount sys-kernel-tracing.mount \
    sys-kernel-config.mount sys-fs-fuse-connections.mount dev-hugepages.mount dev-mqueue.mount \
    modprobe@.service systemd-journal-flush.service proc-sys-fs-binfmt_misc.automount systemd-pcrphase.service \
    cloud-init-hotplugd.socket; do
    systemctl mask "$unit"
done
systemctl enable ssh.service docker.service rayrig-lab-metadata.service \
    cloud-init-local.service cloud-init.service cloud-config.service cloud-final.service
systemctl set-default multi-user.target
rm /usr/bin/py3compile
dpkg-divert --quiet --local --rename --remove /usr/bin/py3compile
python3 -m compileall -q -j "$(nproc)" /usr/lib/python3/dist-packages /usr/lib/python3.11
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/log/*.log /var/log/apt /tmp/* \
    /usr/share/doc /usr/share/man /usr/share/locale /usr/share/info
