"""What SPC-4 says of reservations (5.13), to hold a target against.

A nexus is (host, target port); what is asked for is a dict: see out().
"""

TYPES = (1, 3, 5, 6, 7, 8)
ONLY, ALL = (5, 6), (7, 8)      # registrants only, all registrants

# Answers: no data, a status, a sense.
GOOD, CONFLICT = b"", 0x18
CDB, PARAM, RELEASE_BAD = (5, 0x24, 0), (5, 0x26, 0), (5, 0x26, 4)
PREEMPTED, RELEASED, UNREGISTERED = (6, 0x2a, 3), (6, 0x2a, 4), (6, 0x2a, 5)
REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, ABORT, IGNORE, MOVE = range(8)


class Registration:
    """Of @host at target port @port, None: at all."""

    def __init__(self, host, port, key):
        self.host, self.port, self.key = host, port, key

    def of(self, nexus):
        return self.host == nexus[0] and self.port in (None, nexus[1])


class Model:
    def __init__(self, nexuses):
        self.list, self.holder, self.type = [], None, 0
        self.generation, self.aptpl = 0, False
        self.spc2 = None
        self.nexuses = nexuses
        self.told = {n: set() for n in nexuses}

    def mine(self, nexus):
        for r in self.list:
            if r.of(nexus):
                return r
        return None

    def held(self):
        return self.type != 0

    def holds(self, r):
        return r is not None and self.held() and \
            (self.type in ALL or r is self.holder)

    def tell(self, registrations, what):
        for n in self.nexuses:
            if any(r.of(n) for r in registrations):
                self.told[n].add(what)

    def remove(self, r):
        self.list.remove(r)
        if self.held() and (r is self.holder if self.type not in ALL
                            else not self.list):
            self.holder, self.type = None, 0

    def others(self, r):
        return [o for o in self.list if o is not r]

    def lets(self, nexus, write):
        if self.spc2 is not None:
            return self.spc2 == nexus
        r = self.mine(nexus)
        return not self.held() or self.holds(r) or \
            self.type in ONLY and r is not None or \
            not write and self.type in (1, 5, 7)

    # -- what is asked for; each returns the answer --

    def out(self, nexus, a):
        """PERSISTENT RESERVE OUT of @a: action, type, key, new (the service
        action's key), spec (hosts registered along, None without SPEC_I_PT),
        all_ports, aptpl; to (a nexus) and unregister of a move."""
        action, r = a["action"], self.mine(nexus)
        if self.spc2 is not None:
            return CONFLICT
        if action == RESERVE and a["type"] not in TYPES:
            return CDB
        if action == IGNORE and a["spec"] is not None:
            return PARAM
        if action in (REGISTER, IGNORE):
            return self.register(nexus, r, a)
        if r is None or r.key != a["key"]:
            return CONFLICT
        return getattr(self, ("", "reserve", "release", "clear", "preempt",
                              "preempt", "", "move")[action])(nexus, r, a)

    def register(self, nexus, r, a):
        if a["action"] == REGISTER and a["key"] != (r.key if r else 0):
            return CONFLICT
        spec = a["spec"]
        if spec is not None and r:
            return PARAM
        if a["new"] == 0:
            if r is not None:
                if self.holds(r) and self.type in ONLY:
                    self.tell(self.others(r), RELEASED)
                self.remove(r)
                self.aptpl = a["aptpl"]
                self.generation += 1
            return GOOD
        also = [h for h in spec or () if h != nexus[0]]
        if any(self.mine((h, nexus[1])) for h in also) or \
                len(also) != len(set(also)):
            return PARAM
        if r is None:
            r = Registration(nexus[0], nexus[1], a["new"])
            self.list.append(r)
        r.key = a["new"]
        new = [r]
        for h in also:
            new.append(Registration(h, nexus[1], a["new"]))
            self.list.append(new[-1])
        if a["all_ports"]:
            for r in new:
                self.spread(r)
        self.aptpl = a["aptpl"]
        self.generation += 1
        return GOOD

    def spread(self, r):
        """To all target ports: one registration instead of several."""
        r.port = None
        for o in self.others(r):
            if o.host == r.host:
                if self.holder is o:
                    self.holder = r
                self.list.remove(o)

    def reserve(self, nexus, r, a):
        if self.held():
            return GOOD if self.holds(r) and self.type == a["type"] \
                else CONFLICT
        self.type = a["type"]
        self.holder = None if self.type in ALL else r
        return GOOD

    def release(self, nexus, r, a):
        if not self.holds(r):
            return GOOD
        if self.type != a["type"]:
            return RELEASE_BAD
        if self.type in ONLY + ALL:
            self.tell(self.others(r), RELEASED)
        self.holder, self.type = None, 0
        return GOOD

    def clear(self, nexus, r, a):
        self.tell(self.others(r), PREEMPTED)
        self.list, self.holder, self.type = [], None, 0
        self.generation += 1
        return GOOD

    def preempt(self, nexus, r, a):
        every = self.type in ALL
        if a["new"] == 0 and not every:
            return PARAM
        takes = a["new"] == 0 if every else \
            self.held() and self.holder.key == a["new"]
        if takes and a["type"] not in TYPES:
            return CDB
        gone = [o for o in self.list if a["new"] in (0, o.key)]
        if not gone:
            return CONFLICT
        self.tell([o for o in gone if o is not r], UNREGISTERED)
        was = self.type
        if takes:
            self.list = [o for o in self.list if o is r or o not in gone]
            self.type = a["type"]
            self.holder = None if self.type in ALL else r
            if was != self.type:
                self.tell(self.others(r), RELEASED)
        else:
            for o in gone:
                self.remove(o)
        self.generation += 1
        return GOOD

    def move(self, nexus, r, a):
        if not self.held():
            return CDB
        if not self.holds(r) or self.type in ALL:
            return CONFLICT
        if a["new"] == 0 or a["to"][0] == nexus[0]:
            return PARAM
        to = self.mine(a["to"])
        if to is None:
            to = Registration(a["to"][0], a["to"][1], a["new"])
            self.list.append(to)
        to.key = a["new"]
        self.holder = to
        if a["unregister"]:
            self.list.remove(r)
        self.aptpl = a["aptpl"]
        self.generation += 1
        return GOOD

    def spc2_out(self, nexus, release):
        if self.list:
            return CONFLICT
        if release:
            if self.spc2 == nexus:
                self.spc2 = None
            return GOOD
        if self.spc2 not in (None, nexus):
            return CONFLICT
        self.spc2 = nexus
        return GOOD

    # -- what is to be read --

    def full(self):
        """[(key, target port, host, holds it)], 0 for all target ports."""
        return sorted((r.key, r.port or 0, r.host, self.holds(r))
                      for r in self.list)
