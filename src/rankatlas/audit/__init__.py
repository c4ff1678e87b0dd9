"""While training: copies that must be equal are, shards that must differ do, batches and random states likewise."""

from rankatlas.audit.batches import audit_batches as audit_batches
from rankatlas.audit.random_states import audit_rng as audit_rng
from rankatlas.audit.replicas import audit_replicas as audit_replicas
from rankatlas.audit.report import AuditReport as AuditReport
from rankatlas.audit.report import Finding as Finding
from rankatlas.audit.sets import sets_for as sets_for
