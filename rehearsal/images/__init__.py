"""The lab's images: nodes that boot like machines and the Ray image in them, built here, kept by content."""

from rehearsal.images.build import LabImages, ensure_lab_images
from rehearsal.images.cache import cache_dir, nodes_dir
from rehearsal.images.node import node_run_options
from rehearsal.images.ray_push import publish_ray_image
from rehearsal.images.registry import registry_container_spec, start_registry

__all__ = [
    "LabImages",
    "cache_dir",
    "ensure_lab_images",
    "node_run_options",
    "nodes_dir",
    "publish_ray_image",
    "registry_container_spec",
    "start_registry",
]
