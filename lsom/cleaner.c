/* cleaner: gives segments back that nothing points to. */
#include "lsom/lsom_int.h"

int lsom__cleaner_init(struct lsom_disk *disk)
{
	return 0;
}

void lsom__cleaner_fini(struct lsom_disk *disk)
{
}

void lsom__cleaner_kick(struct lsom_disk *disk)
{
	lsom__segments_release(disk);
}

bool lsom__cleaner_idle(const struct lsom_disk *disk)
{
	return true;
}
