"""The process that runs a job: builds, children, and results as they come. Standard library."""
