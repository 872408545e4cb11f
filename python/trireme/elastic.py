# SPDX-License-Identifier: Apache-2.0
"""A job that goes on when ranks die, leave or join (`trireme run -n 4 --elastic 2:8 -- python script.py`).

    job = trireme.Elastic(least=2, most=8)
    model = trireme.Model(network, train, elastic=job)
    model.train(until_epoch=10, callbacks=[trireme.Lambda(on_membership=lambda p: print(p.membership))])

A training loop of its own (each rank all-reduces over job.comm) catches the Error of a rank that has died:

    except trireme.Error as error:
        if not job.can_recover(error):
            raise
        job.recover(error)                 # then the ranks agree on the step and go on

An Elastic and its models may be closed in any order: the process leaves the job when the last of them is gone.
"""
from ctypes import byref

from . import _c, distribute
from ._call import Owner, call, filled, take
from ._convert import as_dict, expect, options, takes
from ._library import Error, need
from ._methods import ElasticMethods
from .callbacks import membership_dict
from .estimator import Cluster


class Elastic(ElasticMethods, Owner):
    """A process's place in an elastic job. Meets the other ranks, or finds the job that runs; in place of `distribute.init()`.

    least: the job fails when fewer ranks are left; most: no process joins while there are so many
    cluster: a Cluster; None: the place comes from the launcher's variables
    more: members of trm_elastic_options and of the structs inside: decision_seconds, deterministic, join={'timeout_seconds': ...}
    """

    free = 'trm_elastic_destroy'
    ending = False  # close() was called

    @takes(_c.trm_elastic_options)
    def __init__(self, least=1, most=1024, cluster=None, **more):
        self.users, self.keep, self._parts, self._made = 1, [], [], (None, None)
        distribute.refuse_joined()
        made = options(_c.trm_elastic_options, dict(more, least=least, most=most), self.keep)
        for name, value in [*as_dict(made).items(), *as_dict(made.join).items()]:
            need(not isinstance(value, (int, float)) or value >= 0,
                 f'Elastic: {name}: no number below 0 expected (found {value})')
        need(distribute._job() is None, 'Elastic: this process has an Elastic already (found one that is not closed); use that, or close it and its models first')
        cluster = cluster or Cluster()
        self.handle = take(_c.trm_elastic_create, cluster.handle, byref(made))
        distribute.stay_apart(self)
        self.ends_first()

    @property
    def membership(self):
        """The ranks of now: epoch, rank, ranks, lost, left, joined, ... as a dictionary. Epoch 0: this process has not joined yet."""
        return membership_dict(filled(_c.trm_membership, _c.trm_elastic_get_membership, self.handle))

    def _epoch(self):
        """The epoch of the ranks of now; -1 when there are none: this process has left, or recover() has failed."""
        if not self._handle or not _c.trm_elastic_comm(self._handle):
            return -1
        return filled(_c.trm_membership, _c.trm_elastic_get_membership, self._handle).epoch

    def _calls(self, what):
        """The handle with which the three calls of trireme.distribute use the ranks of now. Kept, for its memory that ranks share."""
        ranks = self.comm
        handle = ranks._usable(what)
        if self._made[0] != ranks.epoch:  # ranks that a model has changed take all of the last one with them but for a few bytes
            self._made = ranks.epoch, take(_c.trm_distribute_over, handle)
        return self._made[1]

    def _let_go(self):
        """Before the ranks change: ends what was made over them."""
        for part in reversed(self._parts):
            if part() is not None:
                part().close()
        (epoch, calls), self._parts, self._made = self._made, [], (None, None)
        if epoch == self._epoch():
            _c.trm_distribute_end(calls)

    rank = property(lambda self: self.membership['rank'], doc="This process's rank of now.")
    size = property(lambda self: self.membership['ranks'], doc='The number of ranks of now.')

    @property
    def comm(self):
        """The Communicator of the ranks of now; valid until they change."""
        handle = _c.trm_elastic_comm(self.handle)
        if not handle:
            raise Error('Elastic.comm: this process has no ranks (found no epoch after a failed recover); end it', _c.TRM_PEER)
        return distribute.Communicator(handle, parent=self)

    @staticmethod
    def can_recover(error):
        """Whether other ranks are the reason of an Error: recover() makes a communicator without them."""
        return isinstance(error, Error) and bool(_c.trm_elastic_can_recover(error.code))

    def recover(self, cause=None):
        """Decides with the other ranks who goes on; `comm` is then new. Returns the membership; None: this process has left.

        cause: the Error of the operation that failed
        """
        given = None
        expect(cause is None or isinstance(cause, Error), 'Elastic.recover: cause', 'the Error of the operation that failed', cause)
        if cause is not None:
            given = byref(_c.trm_error(status=cause.code, rank=cause.rank, message=cause.message.encode()[:215]))
        job = self.handle
        self._let_go()
        status = call(_c.trm_elastic_recover, job, given)
        return None if status == _c.TRM_END else self.membership

    def release(self):
        """A model has ended, or close() was called; the last one leaves the job."""
        self.users -= 1
        if self.users == 0 and self._handle:
            self._let_go()
            self.destroy()
            self.closed = 'this process has left the job (close() was called)'

    def close(self):
        """Leaves the job in order, when its models are closed, too."""
        if self._handle and not self.ending:
            self.ending = True
            self.release()


__all__ = ['Elastic']
