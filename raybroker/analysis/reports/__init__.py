"""Answers of jobs as a report: texts, tables, plots, and numbers as people write them.

It imports matplotlib where it is installed. Enter at :mod:`raybroker.analysis.reports.report`.
"""
