"""iscsi-test-cu, libiscsi's conformance tool, unpatched, a test at a time."""
import functools
import re

import basalt

TOOL = "iscsi-test-cu"

# How many tests 1.19 and 1.20 have: families SCSI and iSCSI, and LINUX.
TESTS = (230, 239)
LINUX = (155, 156)

# What a fixed disk may skip, and who has no CHAP, nor copies from an offset on.
SKIPS = re.compile(
    r"^SCSI\.(PreventAllow|NoMedia|ReadOnly)\."
    r"|^SCSI\.StartStopUnit\."
    r"|^SCSI\.ExtendedCopy\.Large$"
    r"|^iSCSI\.iSCSICHAP\.")
# One part says [SKIPPED], the rest of the test goes on and counts.
PARTS = re.compile(r"^\w+\.(WriteSame1[06]\.ZeroBlocks|WriteAtomic16\.VPD|"
                   r"ExtendedCopy\.ValidTgtDescr)$")

# By itself this one fails with every target in 1.19: before anything could set it, it
# asserts that its own 'reconnect_succeeded' is 1.  It passes as the second of
# its suite, so it runs as that.  What it is about, a reset under I/O, is tested
# by MultipathIO.Reset and by tests/unit/iscsi_lun and iscsi_session.
IN_SUITE = {"iSCSI.iSCSITMF.LUNResetSimpleAsync": ("iSCSI.iSCSITMF", 2)}

# What 1.20 does not do itself.
FAULTS = {
    "SCSI.CompareAndWrite.InvalidDataOutSize":
        "libiscsi 1.20 does not change the command that it means to change",
    "iSCSI.iSCSISendTargets.Invalid":
        "libiscsi 1.20 hangs up at a key that is not understood, and does not "
        "come back",
}

SUMMARY = re.compile(r"^\s*tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", re.M)
ASSERTS = re.compile(r"^\s*asserts\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", re.M)
# A test of SWP ends with these words when it cannot set it.
SKIPPED = re.compile(r"\[SKIPPED\]\s*(.*)|(SWP is not changeable)")


def tests(*families):
    """The names FAMILY.SUITE.TEST that the tool lists."""
    status, out = basalt.run([TOOL, "--list"], 60)
    return [l for l in out.split() if l.count(".") == 2 and
            l.split(".")[0] in families]


@functools.lru_cache(None)
def newer():
    """Is it 1.20?"""
    return "iSCSI.iSCSICHAP.Simple" in tests("iSCSI")


def fault(test):
    """Why the tool fails by itself in @test, or None."""
    return FAULTS.get(test) if newer() else None


def selection(test):
    """(what -t is given for @test, how many tests that is)"""
    return (test, 1) if newer() else IN_SUITE.get(test, (test, 1))


class Outcome:
    """What came of one test.

    @kind: passed, skipped, failed, hung (killed after its limit), crashed (the
    tool ended by a signal), lost (it did not run: no login, mostly).  @why says
    more of all but passed.
    """

    def __init__(self, status, out, limit, test="", count=1):
        self.status, self.out = status, out
        ran = SUMMARY.search(out)
        asserts = ASSERTS.search(out)
        skip = SKIPPED.search(out)
        self.kind, self.why = "passed", ""
        if status is None:
            self.kind, self.why = "hung", "no end within %d s" % limit
        elif status < 0:
            self.kind, self.why = "crashed", \
                "the tool ended by signal %d" % -status
        elif not ran or int(ran.group(2)) != count:
            self.kind, self.why = "lost", \
                "the test did not run (status %d)" % status
        elif int(ran.group(4)) or (asserts and int(asserts.group(4))):
            self.kind, self.why = "failed", "failed"
        elif skip and not PARTS.match(test):
            self.kind, self.why = "skipped", \
                skip.group(1) or skip.group(2) or "no reason given"

    def tail(self, lines=45):
        return self.out.split("\n")[-lines:]


def run(test, devices, limit, *options, env=None):
    """@devices: URLs, or /dev/sgN."""
    pattern, count = selection(test)
    status, out = basalt.run([TOOL, "--dataloss", "--normal", *options, "-t",
                              pattern] + list(devices), limit, env=env)
    return Outcome(status, out, limit, test, count)
