"""The jobs and stand-ins of the tests of `engine.gpu`, for those of what travels in a job."""

from tests.engine.gpu.conftest import *  # noqa: F403
