/*
 * Included before the C that mypyc writes: the function that each of its ways out with an exception
 * calls is called seldom. So the compiler puts these ways, more than half of the code, apart from the
 * rest and makes them small: what runs is close together, and more of it stays in the caches.
 */
struct _object;

__attribute__((cold)) void CPy_AddTraceback(const char *, const char *, int, struct _object *);
__attribute__((cold)) void CPy_TypeError(const char *, struct _object *);
