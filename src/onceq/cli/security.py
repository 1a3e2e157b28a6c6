"""How the doctor judges who can read along, log in, and touch a repository. Pure, as `judging`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceq.cli.findings import Finding, when
from onceq.engine.schema.security import SYSTEM_USER_SINCE, is_near

if TYPE_CHECKING:
    from onceq.engine.schema.security import PublicRight, Reach, Stranger

VERIFIED: Final = "verify-full"
"""The only `sslmode` by which the server's name and certificate are checked."""
SCRAM: Final = "scram-sha-256"
SHOWN: Final = 5
USE_SCRAM: Final = "let pg_hba.conf ask for scram-sha-256, or for certificates (cert)"
METHODS: Final[dict[str, tuple[str, str | None]]] = {
    "md5": ("warn", f"whoever reads pg_authid can log in: {USE_SCRAM}, and set the password again"),
    "ident": ("warn", f"it believes the client's machine: {USE_SCRAM}"),
}
"""How a login was proved, where that is weak: the verdict, and what to do."""
IN_CLEAR: Final = frozenset({"password", "ldap", "pam", "bsd", "radius"})
"""Methods by which the password itself is sent: fit under TLS, or on one machine."""


def tls(reach: Reach) -> Finding:
    """Judges whether anybody between this process and the database can read or change things."""
    if is_near(reach.address) and (reach.seen_tls or is_near(reach.seen_from)):
        place = "a Unix socket" if reach.address is None else f"loopback ({reach.address})"
        return Finding("tls", "ok", f"not needed: {place}")
    if not (reach.is_tls or is_near(reach.address)):
        found = f"none, to {reach.address} with sslmode={reach.sslmode}: all is sent in the clear"
        advice = f"turn on `ssl` in PostgreSQL, and connect with sslmode={VERIFIED}"
        return Finding("tls", "fail", found, advice)
    if not (reach.seen_tls or is_near(reach.seen_from)):
        found = f"the database sees us come from {reach.seen_from} without TLS"
        advice = (
            "a proxy or a container's network is between: let it use TLS if it leaves the machine"
        )
        return Finding("tls", "warn", found, advice)
    return when(
        "tls",
        f"{reach.tls_version or 'TLS up to a proxy'}, sslmode={reach.sslmode}",
        f"it may be anybody's database: use sslmode={VERIFIED}, and sslrootcert=FILE or system",
        bad=reach.sslmode != VERIFIED,
    )


def passwords(reach: Reach) -> Finding:
    """Judges how the database keeps the passwords that are set from now on."""
    return when(
        "passwords",
        f"password_encryption {reach.password_encryption}",
        "set it to scram-sha-256, and then set each password again",
        bad=reach.password_encryption != SCRAM,
    )


def login(reach: Reach, *, embedded: bool) -> Finding:
    """Judges how the database was shown who logs in. embedded: nobody else reaches its socket."""
    method = reach.method
    if method is None:
        found = f"{reach.role}; PostgreSQL says how it was proved from {SYSTEM_USER_SINCE} on only"
        advice = f"look into pg_hba.conf that no line says trust: {USE_SCRAM}"
        return Finding("login", "warn", found, advice)
    if method == "trust":
        return _trusted(reach, embedded=embedded)
    found = f"{reach.role}, by {method}"
    if method in IN_CLEAR:
        near = reach.is_tls or is_near(reach.address)
        advice = f"the password is sent as it is, without TLS: use TLS, or {USE_SCRAM}"
        return when("login", found, advice, bad=not near, verdict="fail")
    verdict, weakness = METHODS.get(method, ("ok", None))
    return Finding("login", verdict, found, weakness)


def _trusted(reach: Reach, *, embedded: bool) -> Finding:
    if embedded:
        found = f"{reach.role}, by a Unix socket that only this user can reach"
        return Finding("login", "ok", found)
    found = f"{reach.role}, by trust: nothing was asked, and anybody may say that he is any role"
    verdict = "fail" if reach.address is not None else "warn"
    advice = USE_SCRAM if verdict == "fail" else f"{USE_SCRAM}; on this machine for peer"
    return Finding("login", verdict, found, advice)


def public_rights(repository: str, rights: list[PublicRight]) -> Finding:
    """Judges what PUBLIC, every role there is, may do in a repository.

    Functions may be executed by PUBLIC unless that is revoked; but nobody reaches one without
    USAGE on the schema.
    """
    open_schema = [one for one in rights if one.kind == "schema"]
    data = [one for one in rights if one.kind in {"table", "sequence"}]
    is_used = any("USAGE" in one.rights for one in open_schema)
    functions = [one for one in rights if one.kind == "function" and is_used]
    parts = [f"{one.rights} on the schema" for one in open_schema]
    parts += [f"{one.rights} on {one.name}" for one in data[:SHOWN]]
    parts += [f"rights on {len(data) - SHOWN} more"] if len(data) > SHOWN else []
    if functions:
        owners = sum(one.is_owners for one in functions)
        parts.append(f"EXECUTE on {len(functions)} function(s), {owners} with the owner's rights")
    revoked = (f"revoke all on {what}{repository} from public" for what in REVOKED)
    return when(
        "public rights",
        f"PUBLIC has {'; '.join(parts)}" if parts else "none: PUBLIC may not use the schema",
        "; ".join(revoked),
        bad=bool(parts),
        verdict="fail",
    )


REVOKED: Final = ("schema ", "all tables in schema ", "all sequences in schema ")


def strangers(found: list[Stranger]) -> Finding:
    """Judges whether logins that may not use a repository have locks of it.

    Any login of the database can take them, and stop servers and clients: they are no secret.
    """
    shown = "; ".join(map(str, found[:SHOWN]))
    return when(
        "strangers",
        f"{len(found)} session(s) have locks of the repository, and no right to use it: {shown}"
        if found
        else "none has locks of the repository",
        "end them, and revoke CONNECT on the database: hostile logins get a database of their own",
        bad=bool(found),
        verdict="fail",
    )
