/* cmmds_image: a directory's image, made at once. */
#ifndef BASALT_TESTS_UNIT_CMMDS_IMAGE_H
#define BASALT_TESTS_UNIT_CMMDS_IMAGE_H

#include "cmmds/cmmds_int.h"

/* 0 or -EMSGSIZE; *@out is the caller's to free(). */
static inline int image_of(struct cmmds_state *state, uint8_t **out,
			   size_t *len)
{
	int rv = snapshot__begin(state);

	while (rv == 0 && !snapshot__more(state, out, len))
		;
	return rv;
}

#endif
