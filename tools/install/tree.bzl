"""What `rdmaemu install` copies: files under the paths that they have below a prefix."""

def _install_tree_impl(ctx):
    outputs, lines = [], []
    for target, path in ctx.attr.files.items():
        files = target.files.to_list()
        if path.endswith("/"):
            placed = [(file, path + file.basename) for file in files]
        elif len(files) == 1:
            placed = [(files[0], path)]
        else:
            fail("%s is several files; its path must end with /" % target.label)
        for file, place in placed:
            output = ctx.actions.declare_file(ctx.label.name + "/" + place)
            ctx.actions.symlink(output = output, target_file = file)
            outputs.append(output)
            lines.append(place)
    manifest = ctx.actions.declare_file(ctx.label.name + "/" + ctx.attr.manifest)
    ctx.actions.write(manifest, "".join([line + "\n" for line in sorted(lines + [ctx.attr.manifest])]))
    return [DefaultInfo(files = depset(outputs + [manifest]), runfiles = ctx.runfiles(outputs + [manifest]))]

install_tree = rule(
    implementation = _install_tree_impl,
    attrs = {
        "files": attr.label_keyed_string_dict(allow_files = True, doc = "Path of each; of several the directory, with / at its end"),
        "manifest": attr.string(doc = "Path of the list of all paths, a line each"),
    },
)
