"""A launch checked before a device is booked: findings with codes, numbers, reasons and changes to paste."""

from rankatlas.checks.finding import SEVERITIES as SEVERITIES
from rankatlas.checks.finding import Finding as Finding
from rankatlas.checks.finding import Fix as Fix
from rankatlas.checks.finding import worst as worst
from rankatlas.checks.numbers import Numbers as Numbers
from rankatlas.checks.run import check_job as check_job
from rankatlas.checks.run import check_numbers as check_numbers
from rankatlas.checks.run import check_refusal as check_refusal
