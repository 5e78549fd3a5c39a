#include "base/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>

#include "base/util.h"

_Static_assert(ADDRESS_TEXT >=
		       INET6_ADDRSTRLEN + IF_NAMESIZE + sizeof("[%]:65535"),
	       "the longest one");

void address_text(const struct sockaddr_storage *address, bool zone,
		  char out[ADDRESS_TEXT])
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
	char host[INET6_ADDRSTRLEN] = "", name[IF_NAMESIZE] = "";

	if (address->ss_family != AF_INET6) {
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(out, ADDRESS_TEXT, "%s:%u", host, ntohs(v4->sin_port));
		return;
	}
	inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
	zone = zone && v6->sin6_scope_id != 0 &&
	       if_indextoname(v6->sin6_scope_id, name) != NULL;
	snprintf(out, ADDRESS_TEXT, "[%s%s%s]:%u", host, zone ? "%" : "", name,
		 ntohs(v6->sin6_port));
}

bool address_any(const struct sockaddr_storage *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

	return address->ss_family == AF_INET6
		       ? IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)
		       : v4->sin_addr.s_addr == INADDR_ANY;
}

in_port_t *address_port(struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6
		       ? &((struct sockaddr_in6 *)address)->sin6_port
		       : &((struct sockaddr_in *)address)->sin_port;
}
