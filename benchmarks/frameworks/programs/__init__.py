"""One program for each framework: its app, a task that does nothing, and how tasks are pushed.

They run in environments of their own, so the frameworks are looked up when they are imported: ours
need not have them. Each has `push_each(count)`, which waits for every push, and those whose
framework can push many in one call have `push_many(count)`.
"""
