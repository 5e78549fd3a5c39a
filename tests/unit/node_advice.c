/* What people are told to type: about disks, and in words that a shell takes. */
#include "base/health.h"
#include "base/util.h"
#include "node/node_int.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <string.h>

static struct node_disk disk(const char *path, int status)
{
	struct node_disk d = { .state = NODE_DISK_FAILED, .status = status };

	memset(d.id.b, 0xab, sizeof(d.id.b));
	strcpy(d.path, path);
	return d;
}

TEST(advice, words)
{
	struct node_disk d = disk("/dev/sdb", 0);
	char word[NODE_DISK_WORD_MAX];

	CHECK_STR(node__disk_word(&d, word), "/dev/sdb");
	d = disk("/srv/a disk", 0);
	CHECK_STR(node__disk_word(&d, word),
		  "abababab-abab-abab-abab-abababababab");
	memset(d.path, 'a', NODE_DISK_WORD_MAX - 1);
	d.path[NODE_DISK_WORD_MAX - 1] = '\0';
	CHECK_EQ(strlen(node__disk_word(&d, word)), NODE_DISK_WORD_MAX - 1);
	memset(d.path, 'a', NODE_DISK_WORD_MAX);
	d.path[NODE_DISK_WORD_MAX] = '\0';
	CHECK_STR(node__disk_word(&d, word),
		  "abababab-abab-abab-abab-abababababab");
	CHECK(!node__is_plain("a;b"));
	CHECK(!node__is_plain("a$b"));
}

/* Each cause has a way out of its own. */
TEST(advice, ways_out)
{
	static const struct {
		int status;
		const char *has;
	} t[] = {
		{ -EUCLEAN, "basalt disk rebuild /dev/sdb" },
		{ -EMEDIUMTYPE, "newer basaltd than " BASALT_VERSION },
		{ -ENODATA, "basalt disk remove /dev/sdb --force" },
		{ -ERANGE, "Put the whole file or device back" },
		{ -ENOENT, "See that it is there" },
		{ -EIO, "tries it again by itself, and at once by: basalt disk "
			"retry /dev/sdb.  If sectors stay unreadable, and only "
			"they are to be lost, add: --lose-unreadable" },
		{ -EINVAL, "See to that, then basalt disk retry /dev/sdb" },
	};
	char fix[400];

	for (unsigned i = 0; i < ARRAY_LEN(t); i++) {
		struct node_disk d = disk("/dev/sdb", t[i].status);

		node__disk_fix(&d, fix, sizeof(fix));
		CHECK(strstr(fix, t[i].has) != NULL);
		/* One that an older program cannot read is not broken. */
		CHECK((strstr(fix, "rebuild") != NULL) ==
		      (t[i].status == -EUCLEAN));
	}
}

/* So has each fault that ended one in use. */
TEST(advice, failed_in_use)
{
	static const struct {
		int status;
		const char *has, *has_not;
	} t[] = {
		{ -EIO,
		  "the cable's, its data comes back by: basalt disk retry",
		  "space" },
		{ -ENOSPC, "its data comes back by: basalt disk retry",
		  "cable" },
		{ -EPERM, "writable", "cable" },
	};
	char path[NODE_DISK_WORD_MAX] = "/dev/";
	struct lsom_disk_info info = { .state = LSOM_DISK_FAILED };
	struct health_result out;

	memset(path + 5, 'd', sizeof(path) - 6);
	for (unsigned i = 0; i < ARRAY_LEN(t); i++) {
		struct node_disk d = disk(path, 0);

		info.failed_status = t[i].status;
		node__disk_failed_fix(&d, &info, out.fix, sizeof(out.fix));
		CHECK(strstr(out.fix, t[i].has) != NULL);
		CHECK(strstr(out.fix, t[i].has_not) == NULL);
		CHECK(strlen(out.fix) < sizeof(out.fix) - 1);
	}
}

/* Which may be a cable, or one sector: the rest of the disk need not be given up. */
TEST(advice, a_device_that_only_says_that_it_failed)
{
	struct node_disk d = disk("/dev/sdb", -EIO);
	char fix[400];

	d.by_hand = true;
	node__disk_fix(&d, fix, sizeof(fix));
	CHECK(strstr(fix, "see to that, then basalt disk retry /dev/sdb.") !=
	      NULL);
	d.flags = NODE_OPEN_REBUILD;
	node__disk_fix(&d, fix, sizeof(fix));
	CHECK(strstr(fix, "basalt disk rebuild /dev/sdb.") != NULL);
	CHECK(strstr(fix, "--lose-unreadable") != NULL);
	/* That was no sector. */
	d.flags = NODE_OPEN_LOSE_UNREADABLE;
	node__disk_fix(&d, fix, sizeof(fix));
	CHECK_STR(fix, "See to that, then basalt disk retry /dev/sdb");
}

/* In health as well, which has least room, and whatever the disk is called. */
TEST(advice, is_whole)
{
	static const int status[] = { -EUCLEAN, -EMEDIUMTYPE, -ENODATA, -ERANGE,
				      -ENOENT,	-EIO,	      -EINVAL };
	char path[NODE_DISK_WORD_MAX] = "/dev/";
	struct health_result out;

	memset(path + 5, 'd', sizeof(path) - 6);
	for (unsigned i = 0; i < 4 * ARRAY_LEN(status); i++) {
		struct node_disk d = disk(path, status[i / 4]);

		d.by_hand = i % 2 > 0;
		d.flags = i % 4 > 1 ? NODE_OPEN_REBUILD : 0;
		node__disk_fix(&d, out.fix, sizeof(out.fix));
		CHECK(strlen(out.fix) < sizeof(out.fix) - 1);
	}
}
