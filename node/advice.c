/*
 * advice: what people are told to type.
 *
 * Next steps for a disk that does not serve; health, disk list and refusals have
 * them from here.  A line to paste is to mean the same to a shell.
 */
#include "base/kv.h"
#include "base/util.h"
#include "node/node_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool node__is_plain(const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789/.,:@%+_-";

	return word[strspn(word, plain)] == '\0';
}

const char *node__disk_word(const struct node_disk *d,
			    char out[NODE_DISK_WORD_MAX])
{
	if (strlen(d->path) < NODE_DISK_WORD_MAX && node__is_plain(d->path))
		strcpy(out, d->path);
	else
		uuid_format(&d->id, out);
	return out;
}

void node__silent_tell(const struct node_disk *d, uint64_t silent_ns,
		       char out[NODE_SILENT_MAX])
{
	bool any = d->state == NODE_DISK_OPENING && d->locating &&
		   strncmp(d->path, "/dev/", 5) == 0;

	snprintf(out, NODE_SILENT_MAX, "it%s has not answered for %llu s",
		 any ? ", or a device that may be it," : "",
		 (unsigned long long)(silent_ns / SEC));
}

void node__silent_fix(const struct node_disk *d, char *out, size_t len)
{
	char word[NODE_DISK_WORD_MAX];

	if (d->state == NODE_DISK_ONLINE)
		snprintf(out, len, "%s", NODE_SILENT_FIX);
	else
		snprintf(out, len,
			 "See to it: the kernel's log may say why.  It is %s "
			 "when it answers; if it is lost: basalt disk remove "
			 "%s --force",
			 d->state == NODE_DISK_OPENING ? "opened" : "closed",
			 node__disk_word(d, word));
}

void node__leaving_tell(struct node_disk *d, char out[NODE_SILENT_MAX])
{
	snprintf(out, NODE_SILENT_MAX, "it was removed, and is let go when %s",
		 node__disk_silent_ns(d) >= LSOM_SILENT_NS ? "it answers"
		 : d->state == NODE_DISK_OPENING	   ? "its opening ends"
							   : "it is closed");
}

void node__index_wants_tell(int status, char out[NODE_WANTS_MAX])
{
	snprintf(out, NODE_WANTS_MAX,
		 "no %s is left for its index: it goes on without for ten "
		 "minutes",
		 kv_wanted(status));
}

void node__wanted_fix(const struct node *node, int status, const char *then,
		      char *out, size_t len)
{
	if (status == -ENOSPC)
		node__datadir_fix(node, then, out, len);
	else
		kv_wanted_fix(status, then, out, len);
}

/* A cable, or a sector of a device that tells no more than that it failed. */
static void unreadable_fix(const struct node_disk *d, const char *word,
			   char *out, size_t len)
{
	snprintf(
		out, len,
		"If it is a cable, see to that%s basalt disk %s %s.  If "
		"sectors stay unreadable, and only they are to be lost, add: "
		"--lose-unreadable",
		d->by_hand
			? ", then"
			: ": basaltd tries it again by itself, and at once by:",
		d->flags & NODE_OPEN_REBUILD ? "rebuild" : "retry", word);
}

void node__disk_fix(const struct node_disk *d, char *out, size_t len)
{
	const unsigned long long look = NODE_LOOK_NS / SEC;
	char word[NODE_DISK_WORD_MAX], retry[NODE_DISK_WORD_MAX + 32];

	snprintf(retry, sizeof(retry), "basalt disk retry %s",
		 node__disk_word(d, word));
	if (d->state == NODE_DISK_CLOSED || d->status == -EUCLEAN)
		snprintf(out, len, "basalt disk rebuild %s", word);
	else if (d->status == -ENOSPC || d->status == -EMFILE ||
		 d->status == -ENFILE)
		node__wanted_fix(d->node, d->status, retry, out, len);
	else if (d->status == -EMEDIUMTYPE)
		snprintf(out, len,
			 "A newer basaltd than %s wrote it: install that one "
			 "again, and restart.",
			 BASALT_VERSION);
	else if (node__disk_is_older(d) && d->by_hand)
		snprintf(out, len,
			 "Put the disk itself back, then %s; if it is lost, "
			 "this copy is taken as it is by: basalt disk rebuild "
			 "DISK --force",
			 retry);
	else if (node__disk_is_older(d))
		snprintf(out, len,
			 "Put the disk itself back: basaltd looks for it every "
			 "%llu s.  If it is lost, this copy is taken as it is "
			 "by: basalt disk rebuild %s --force",
			 look, word);
	else if (d->status == -EIO && !(d->flags & NODE_OPEN_LOSE_UNREADABLE))
		unreadable_fix(d, word, out, len);
	else if (d->by_hand)
		snprintf(out, len, "See to that, then %s", retry);
	else if (d->status == -ENODATA || d->status == -ERANGE)
		snprintf(out, len,
			 "Put the whole file or device back: basaltd looks for "
			 "it every %llu s.  If it is lost: basalt disk remove "
			 "%s --force",
			 look, word);
	else if (node__disk_is_missing(d))
		snprintf(out, len,
			 "See that it is there (a device under any name): "
			 "basaltd looks for it every %llu s.  If it is lost: "
			 "basalt disk remove %s --force",
			 look, word);
	else if (node__disk_is_retried(d))
		snprintf(out, len,
			 "See to that: basaltd tries it again by itself, and "
			 "at once by: %s",
			 retry);
	else
		snprintf(out, len, "See to that, then %s", retry);
}

void node__disk_failed_fix(const struct node_disk *d,
			   const struct lsom_disk_info *info, char *out,
			   size_t len)
{
	char word[NODE_DISK_WORD_MAX], retry[NODE_DISK_WORD_MAX + 32];
	char waits[sizeof(retry) + 80];

	snprintf(retry, sizeof(retry), "basalt disk retry %s",
		 node__disk_word(d, word));
	snprintf(waits, sizeof(waits),
		 "it goes on by itself; where that took over ten minutes, by: "
		 "%s",
		 retry);
	if (info->index_wants < 0)
		node__wanted_fix(d->node, info->index_wants,
				 info->state == LSOM_DISK_FAILED ? retry
								 : waits,
				 out, len);
	else if (info->index_failed)
		snprintf(out, len,
			 "What is under data_dir %.100s failed, and not the "
			 "disk, which has all its data: see to that, then %s",
			 d->node->config->data_dir, retry);
	else if (info->failed_status == -ENOSPC)
		snprintf(out, len,
			 "Give it space (the pool or file system it lies in), "
			 "or its whole size: its data comes back by: %s.  If "
			 "it is gone: basalt disk remove DISK --force",
			 retry);
	else if (info->failed_status == -EPERM)
		snprintf(out, len,
			 "Make it writable (blockdev --setrw; the kernel's log "
			 "may say why it is not), then %s",
			 retry);
	else
		snprintf(out, len,
			 "If the fault was the cable's, its data comes back "
			 "by: %s.  Else replace the disk: basalt disk remove "
			 "DISK --force gives it up.",
			 retry);
}
