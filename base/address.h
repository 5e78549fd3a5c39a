/*
 * address: an IP address with its port, as people write it.
 */
#ifndef BASALT_BASE_ADDRESS_H
#define BASALT_BASE_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#define ADDRESS_TEXT 72u

/*
 * "192.0.2.1:3260", "[2001:db8::1]:3260" (RFC 5952).  @zone: "[fe80::1%eth0]:3260"
 * where the address has a zone, which means nothing on another machine.
 */
void address_text(const struct sockaddr_storage *address, bool zone,
		  char out[ADDRESS_TEXT]);

/* It stands for all addresses of its family. */
bool address_any(const struct sockaddr_storage *address);

/* Its port, in network order. */
in_port_t *address_port(struct sockaddr_storage *address);

#endif
