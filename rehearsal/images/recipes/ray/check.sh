# Runs inside the new root: what the image is for works in it, as the user it runs as.
cd /
exec setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/ray OMP_NUM_THREADS=1 /opt/ray/bin/python - <<'END'
import sys

import fsspec
import gymnasium
import pyarrow.dataset
import pyarrow.fs
import pydantic
import ray
import ray.dashboard.modules.job.job_head
import ray.job_submission
import s3fs
import torch
from ray.rllib.algorithms.ppo import PPOConfig

assert torch.from_numpy(torch.ones(3).numpy()).sum().item() == 3.0
gymnasium.make("CartPole-v1").reset(seed=1)
PPOConfig().environment("CartPole-v1").validate()
pyarrow.fs.S3FileSystem(anonymous=True, region="eu-west-1")
print("python", sys.version.split()[0], "ray", ray.__version__, "torch", torch.__version__, "s3fs", s3fs.__version__)
END
