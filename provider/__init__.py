"""The `rayrig` Pulumi provider plugin: thin custom resources through which the engine calls the libraries.

Nothing of bootstrap, remote or images is imported before a create or an update needs it, so that `pulumi destroy`
works while they are broken.
"""
