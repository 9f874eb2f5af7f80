"""Where rows come from: files, the hub, generators with a seed."""
