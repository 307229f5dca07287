"""The process and its surroundings: settings, signals, threads, machine, pod, plugins."""
