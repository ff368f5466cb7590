# usage: inside.sh ROOT SCRIPT [HOST_PATH INSIDE_PATH]...
# Runs SCRIPT inside ROOT. The caller gave us a mount namespace of our own: all mounts end with this process.
root=$1 script=$2
shift 2
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for name in resolv.conf hosts; do
    # Bound, not copied: the image keeps its own. A missing file gets an empty one to lie on.
    [ -e "$root/etc/$name" ] || : >"$root/etc/$name"
    mount --bind "$(realpath "/etc/$name")" "$root/etc/$name"
done
host=$root/run/rayrig-host
while [ $# -gt 0 ]; do
    inside=$root$2
    mkdir -p "$(dirname "$inside")"
    if [ -d "$1" ]; then mkdir "$inside"; else : >"$inside"; fi
    mount --bind "$1" "$inside"
    mount -o remount,bind,ro "$inside"
    shift 2
done
code=0
chroot "$root" /bin/sh -eu -c "$(cat "$script")" </dev/null || code=$?
if [ -d "$host" ]; then
    for path in "$host"/*; do umount -l "$path"; done
    rm -rf --one-file-system "$host"
fi
exit "$code"
