"""The state machine: jobs, queues, leases, timers, dependencies.

Pure: no sockets, files, threads or clocks in here. `now` is passed in, records and effects come
out. Everything above this package (journal, broker, protocols) may import it; it imports none of
them.
"""
