# SPDX-License-Identifier: Apache-2.0
"""Plans of a model for many ranks: predicted, searched and explained without training.

    plan = Planner('resnet50', data, ranks=8)           # model={'split': {'mesh': '2x4'}, 'memory_bytes': ...}: of the model
    plan.info['step_seconds'], plan.report()['meshes']
    plan                       # in a notebook: the picture of the operators
    plan.save('plan.txt')      # Model(..., split={'kind': 'planned', 'plan': open('plan.txt').read()})
"""
import json
from ctypes import byref

from . import _c
from ._call import Owner, call, filled, take, text_of
from ._convert import as_dict, options, takes, text
from .model import Model


class Planner(Owner):
    """The chosen plan for a model and its alternatives.

    model: further arguments of Model: {'optimizer': ..., 'memory_bytes': ..., 'split': {'mesh': ..., 'search': ...}}
    more: members of trm_planner_options: ranks, hosts, links, measure_seconds, measure, own_devices, ...
    """

    free = 'trm_planner_destroy'

    @takes(_c.trm_planner_options)
    def __init__(self, network, data, model=None, **more):
        self.keep, self.handle = [], None
        # The model's options hold the callbacks; the model itself is small beside the search, and needed by nothing else.
        self.model = Model(network, data, **(model or {}))
        given = options(_c.trm_planner_options, more, self.keep)
        self.handle = take(_c.trm_planner_create, byref(self.model.options_c), byref(given), run=self.model._call)

    @property
    def info(self):
        """The chosen plan and its search: mesh, step_seconds, samples_per_second, memory_bytes, lower_bound, gap, ..."""
        return as_dict(filled(_c.trm_planner_info, _c.trm_planner_get_info, self.handle))

    def report(self):
        """The whole report as a dictionary."""
        return json.loads(text_of(_c.trm_planner_report(self.handle, True)))

    def __str__(self):
        return text_of(_c.trm_planner_report(self.handle, False))

    def svg(self):
        """A picture of the operators, by how they are cut."""
        return text_of(_c.trm_planner_svg(self.handle))

    _repr_svg_ = svg

    def dot(self):
        """The same picture in the language of Graphviz."""
        return text_of(_c.trm_planner_dot(self.handle))

    def plans(self):
        """The chosen plan, then other good plans and the baselines: dictionaries with the text of each plan."""
        found = []
        while True:
            about = _c.trm_planner_candidate()
            plan = _c.trm_planner_plan(self.handle, len(found), byref(about))
            if not plan:
                return found
            found.append(dict(as_dict(about), plan=text_of(plan)))

    @takes(_c.trm_simulation_options)
    def simulate(self, **more):
        """Simulates the chosen plan; more: largest, straggler, trace."""
        given = options(_c.trm_simulation_options, dict(more, json=True), self.keep)
        return json.loads(text_of(take(_c.trm_planner_simulate, self.handle, byref(given))))

    def save(self, path):
        """Writes the chosen plan as a plan file."""
        call(_c.trm_planner_save, self.handle, text(path))

def read_plan(path):
    """The content of a plan file as a dictionary; its lines under "text"."""
    out = _c.trm_plan_info()
    lines = text_of(take(_c.trm_plan_read, text(path), byref(out)))
    return dict(as_dict(out), text=lines)
