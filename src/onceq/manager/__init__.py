"""The queue manager: the operations on a repository."""

from onceq.manager.async_queue_manager import AsyncQueueOperations
from onceq.manager.caller import enqueue, enqueue_async
from onceq.manager.queue_manager import QueueOperations

__all__ = ["AsyncQueueOperations", "QueueOperations", "enqueue", "enqueue_async"]
