"""From C sources to images: the compiler, its child process, the cache, the running kernel's types."""
