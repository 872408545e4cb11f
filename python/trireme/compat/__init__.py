# SPDX-License-Identifier: Apache-2.0
"""Faces of other frameworks: trireme.compat.mindspore."""
