"""A basaltd with something wrong in it, for tests that must find it."""
import os
import subprocess

import basalt

ROOMS = ("node", "iser", "iscsi", "dom", "lsom", "cmmds", "rdt", "proto",
         "base")
PKGS = ("libuv", "liburing", "libprotobuf-c", "libcrypto", "jansson",
        "libsystemd", "libmicrohttpd", "libisal", "inih", "libibverbs",
        "librdmacm")


def basaltd(out, source, changes, tree=basalt.O, cflags=("-O2", "-g")):
    """Link @out of what is built in @tree and of @source, a file of the tree,
    with @changes: (what stands there, what shall)."""
    with open(os.path.join(basalt.TOP, source)) as f:
        text = f.read()
    for old, new in changes:
        if old not in text:
            raise basalt.Failure("%s: no '%s'" % (source, old))
        text = text.replace(old, new)
    changed = "%s.%s" % (out, os.path.basename(source))
    with open(changed, "w") as f:
        f.write(text)
    libs = [os.path.join(tree, "lib", room + ".a") for room in ROOMS]
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", *PKGS],
                           stdout=subprocess.PIPE, text=True,
                           check=True).stdout.split()
    # Linked before the libraries, so that theirs is not taken.
    status, log = basalt.run(
        ["gcc", "-std=gnu11", "-D_GNU_SOURCE", *cflags, "-pthread", "-w",
         "-fno-lto", "-fno-strict-aliasing", "-I" + basalt.TOP, "-I" + os.path.join(tree, "gen"), "-o", out,
         changed, os.path.join(tree, "node", "main.o"),
         "-Wl,--start-group"] + [l for l in libs if os.path.exists(l)] +
        ["-Wl,--end-group"] + flags +
        ["-lrocksdb", "-lraft", "-lpthread", "-lm"], 300)
    if status != 0:
        raise basalt.Failure("the mutant does not build\n" + log)
