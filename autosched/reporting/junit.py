"""A verification as a JUnit file, which services of continuous integration show."""

from __future__ import annotations

from xml.etree import ElementTree

from autosched.reporting.verify import Verification
from autosched.reporting.winners import named
from search_spaces.plain_text import visible

# Elements of a test case by verdict: none for one that passed.
_ELEMENTS = {"slower": "failure", "broken": "error", "ambiguous": "skipped", "unfit": "skipped"}


def junit_xml(verification: Verification) -> bytes:
    """The XML file: a test case for each kernel; slower ones failed, ambiguous and unfit ones were skipped."""
    suite = ElementTree.Element("testsuite", name="autosched verify", tests=str(len(verification.kernels)))
    for total, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(total, str(sum(_ELEMENTS.get(kernel.verdict) == element for kernel in verification.kernels)))
    for kernel in verification.kernels:
        case = ElementTree.SubElement(
            suite, "testcase", classname=visible(kernel.record.backend), name=named(kernel.record)
        )
        told = visible(f"{kernel.verdict}: {kernel.reason}")
        if kernel.verdict in _ELEMENTS:
            ElementTree.SubElement(case, _ELEMENTS[kernel.verdict], message=told)
        else:
            ElementTree.SubElement(case, "system-out").text = told
    written: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return written
