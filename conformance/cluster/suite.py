"""Clusters of nodes with a real etcd beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

# Each registers its tests.
import inits  # noqa: F401
import joins  # noqa: F401
import demos  # noqa: F401
import failures  # noqa: F401
import restores  # noqa: F401
import buckets  # noqa: F401
import moves  # noqa: F401
import failovers  # noqa: F401
import sealed  # noqa: F401
import tails  # noqa: F401
import writers  # noqa: F401
import loads  # noqa: F401
import damage  # noqa: F401
# They leave nodes with broken disks in the cluster that stories share.
import disks  # noqa: F401
from world import World, suite

if __name__ == "__main__":
    # Most of their time they wait: for leases to end, for nodes to come back.
    suite.main_in_lanes(2, World)
