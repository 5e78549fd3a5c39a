/*
 * space: how little room under an object is called low.  A disk is low once it
 * has DOM_LOW_SPACE_PERCENT of what it may use left (dom.c watches it).
 */
#include "dom/dom_int.h"

uint64_t dom_object_low_space(const struct dom_object *object)
{
	struct dom__disk *disk;
	uint64_t sum = 0;

	TAILQ_FOREACH (disk, &object->dom->disks, link)
		if (dom__object_uses_disk(object, disk))
			sum += disk->usable_bytes / 100 * DOM_LOW_SPACE_PERCENT;
	return sum;
}
