"""New plugin packages: a kind and a name in, the files of a pip package that passes its own tests out."""
