# Runs inside the new root: Ray beside Debian's torch, every file checked against the hashes of the lock.
python3 -m venv --system-site-packages --without-pip /opt/ray
python3 -m venv /opt/installer
/opt/installer/bin/python -m pip --python /opt/ray/bin/python install \
    --no-cache-dir --no-compile --no-deps --only-binary :all: --require-hashes -r "$REQUIREMENTS"
rm -rf /opt/installer
