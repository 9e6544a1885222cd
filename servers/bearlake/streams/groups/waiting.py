"""Answers the futures on which members wait for their round or assignment.

A waiting client may have disconnected: a future that is already done stays unchanged, and an unretrieved refusal logs no warning.
"""

import asyncio

from bearlake.streams.groups.model import Group, Joined, Member, Synced
from bearlake.streams.groups.problems import GroupRefusal, Problem


def done_join(loop: asyncio.AbstractEventLoop, answer: Joined) -> asyncio.Future[Joined]:
    """Return a future that is done with the answer."""
    future: asyncio.Future[Joined] = loop.create_future()
    future.set_result(answer)
    return future


def done_sync(loop: asyncio.AbstractEventLoop, group: Group, member: Member) -> asyncio.Future[Synced]:
    """Return a future that is done with the member's assignment."""
    future: asyncio.Future[Synced] = loop.create_future()
    future.set_result(_synced(group, member))
    return future


def finish_join(member: Member, answer: Joined) -> None:
    """Answer the member's join."""
    future, member.joining = member.joining, None
    if future is not None and not future.done():
        future.set_result(answer)


def finish_sync(member: Member, group: Group) -> None:
    """Answer the member's sync with its assignment."""
    future, member.syncing = member.syncing, None
    if future is not None and not future.done():
        future.set_result(_synced(group, member))


def refuse_join(member: Member, problem: Problem) -> None:
    """Refuse the member's join, if one is waiting."""
    future, member.joining = member.joining, None
    if future is not None and not future.done():
        future.set_exception(GroupRefusal(problem))
        future.exception()


def refuse_sync(member: Member, problem: Problem) -> None:
    """Refuse the member's sync, if one is waiting."""
    future, member.syncing = member.syncing, None
    if future is not None and not future.done():
        future.set_exception(GroupRefusal(problem))
        future.exception()


def refuse_all(member: Member, problem: Problem) -> None:
    """Refuse the member's waiting join or sync."""
    refuse_join(member, problem)
    refuse_sync(member, problem)


def _synced(group: Group, member: Member) -> Synced:
    return Synced(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment)
