"""Makes tokens and key sets that nobody should believe.

usage: verify_forge.py <REQUEST >CASES

The request is a JSON object: seed (base64, the server's), token (one of the
server's that is valid), jwks (its key set) and url (of a server that counts
its callers).  The cases are a JSON array of objects: name, token, jwks (as
text; null for the server's own) and expect, what keyright_verify must answer:
a status, or the SQLSTATE of what is no JWK Set.

With the seed at hand most of them carry a good signature, so that it is the
verifier's own strictness that has to refuse them.
"""
import base64
import hashlib
import hmac
import json
import sys

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils
from cryptography.hazmat.primitives import hashes, serialization

ORDER = 2 ** 252 + 27742317777372353535851937790883648493


def b64(data):
    if isinstance(data, str):
        data = data.encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def raw_public(key):
    return key.public_key().public_bytes(serialization.Encoding.Raw,
                                         serialization.PublicFormat.Raw)


def thumbprint(x):
    text = '{"crv":"Ed25519","kty":"OKP","x":"%s"}' % x
    return b64(hashlib.sha256(text.encode()).digest())


def jwk(x, **more):
    return {"kty": "OKP", "crv": "Ed25519", "x": x, **more}


class Forger:
    def __init__(self, request):
        self.key = ed25519.Ed25519PrivateKey.from_private_bytes(
            base64.b64decode(request["seed"]))
        self.enemy = ed25519.Ed25519PrivateKey.generate()
        self.x = b64(raw_public(self.key))
        self.enemy_x = b64(raw_public(self.enemy))
        self.token = request["token"]
        self.url = request["url"]
        self.jwks = request["jwks"]
        self.header = json.loads(unb64(self.token.split(".")[0]))
        self.payload_text = unb64(self.token.split(".")[1]).decode()
        self.payload = json.loads(self.payload_text)
        self.cases = []

    def add(self, name, token, expect, jwks=None):
        self.cases.append({"name": name, "token": token, "expect": expect,
                           "jwks": jwks})

    def signed(self, header, payload, key=None):
        """Texts or values; texts are taken as they are."""
        parts = [p if isinstance(p, (str, bytes)) else compact(p)
                 for p in (header, payload)]
        text = b64(parts[0]) + "." + b64(parts[1])
        return text + "." + b64((key or self.key).sign(text.encode()))

    def head(self, *without, **more):
        kept = {k: v for k, v in self.header.items() if k not in without}
        return {**kept, **more}

    def body(self, *without, **more):
        kept = {k: v for k, v in self.payload.items() if k not in without}
        return {**kept, **more}

    def with_text(self, member, text):
        """The payload with this text as the value of a number."""
        old = '"%s":%d' % (member, self.payload[member])
        assert old in self.payload_text
        return self.payload_text.replace(old, '"%s":%s' % (member, text))

    # ----- the cases -----

    def controls(self):
        self.add("the server's own", self.token, "valid")
        again = self.signed(self.header, self.payload_text)
        self.add("signed again by foreign software", again, "valid")
        assert again == self.token, "Ed25519 is deterministic"
        self.add("a member without a meaning",
                 self.signed(self.header, self.body(extra=[{"a": 1}])), "valid")
        self.add("the last second",
                 self.signed(self.header, self.with_text("exp", "253402300799")),
                 "valid")
        self.add("the key set as given", self.token, "valid", self.jwks)

    def algorithms(self):
        parts = self.token.split(".")
        for alg in ("none", "None", "NONE", "nOnE", ""):
            header = b64(compact(self.head(alg=alg)))
            self.add("alg %r, no signature" % alg,
                     header + "." + parts[1] + ".", "malformed")
            self.add("alg %r, the old signature" % alg,
                     header + "." + parts[1] + "." + parts[2], "malformed")
            self.add("alg %r, signed" % alg,
                     self.signed(self.head(alg=alg), self.payload), "malformed")
        pem = self.key.public_key().public_bytes(
            serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo)
        for name, secret in (("raw", raw_public(self.key)),
                             ("base64url", self.x.encode()), ("PEM", pem),
                             ("JWK Set", self.jwks.encode()), ("empty", b"")):
            for alg, algorithm in (("HS256", "sha256"), ("HS512", "sha512")):
                text = (b64(compact(self.head(alg=alg))) + "." + parts[1])
                mac = hmac.new(secret, text.encode(), algorithm).digest()
                self.add("%s with the public key (%s) as secret" % (alg, name),
                         text + "." + b64(mac), "malformed")
        text = b64(compact(self.head(alg="ES256"))) + "." + parts[1]
        der = ec.generate_private_key(ec.SECP256R1()).sign(
            text.encode(), ec.ECDSA(hashes.SHA256()))
        r, s = utils.decode_dss_signature(der)
        self.add("ES256", text + "." + b64(r.to_bytes(32, "big") +
                                           s.to_bytes(32, "big")), "malformed")
        for alg in ("eddsa", "EDDSA", "EdDSA ", "Ed25519", "Ed448", "RS256",
                    "EdDSA\u0000", None, True, 1, ["EdDSA"], {"EdDSA": 1}):
            self.add("alg %r, signed" % (alg,),
                     self.signed(self.head(alg=alg), self.payload), "malformed")
        self.add("alg absent",
                 self.signed(self.head("alg"), self.payload), "malformed")
        for first, second in (("EdDSA", "none"), ("none", "EdDSA")):
            header = compact(self.head("alg"))[:-1]
            self.add("alg twice, %s last" % second, self.signed(
                '%s,"alg":"%s","alg":"%s"}' % (header, first, second),
                self.payload), "malformed")

    def headers(self):
        enemy = jwk(self.enemy_x, kid=thumbprint(self.enemy_x))
        for name, value in (
                ("jwk", enemy), ("jwk", jwk(self.x)), ("jku", self.url),
                ("jku", "file:///etc/passwd"), ("x5u", self.url),
                ("x5u", "file:///dev/zero"), ("x5c", ["MIIB"]), ("x5t", "x"),
                ("crit", ["exp"]), ("crit", []), ("crit", ["b64"]),
                ("b64", False), ("zip", "DEF"), ("cty", "JWT"),
                ("enc", "A128GCM"), ("iss", "x"), ("", "x"), ("Alg", "none")):
            what = "header with %s" % name
            self.add(what + ", signed", self.signed(
                self.head(**{name: value}), self.payload), "malformed")
            self.add(what + ", signed by another", self.signed(
                self.head(**{name: value}), self.payload, self.enemy),
                "malformed")
        for typ in ("JWT", "", "keyright-lease+JWT",
                    "application/keyright-lease+jwt", None, ["x"]):
            self.add("typ %r" % (typ,), self.signed(
                self.head(typ=typ), self.payload), "malformed")
        self.add("typ absent", self.signed(self.head("typ"), self.payload),
                 "malformed")
        for text in ("", " ", "[]", '"x"', "null", "{", "{}", "5",
                     compact(self.header) + "x", compact([self.header]),
                     "\ufeff" + compact(self.header), "[" * 50000):
            self.add("header %.20r" % text, self.signed(text, self.payload),
                     "malformed")

    def key_names(self):
        other = thumbprint(self.enemy_x)
        for kid in (other, "", "../../../../etc/passwd", "/dev/zero",
                    "' OR 1=1 --", "'; DROP TABLE keyright.license; --",
                    "x" * 1000, self.url, "%s%n", "1", self.x):
            for key, who in ((self.key, "us"), (self.enemy, "another")):
                self.add("kid %.40r, signed by %s" % (kid, who), self.signed(
                    self.head(kid=kid), self.payload, key), "unknown_key")
        self.add("kid of 1 MB", self.signed(
            self.head(kid="k" * 2 ** 20), self.payload), "malformed")
        for kid in ("\u0000", None, 1, True, [self.header["kid"]], {"kid": 1}):
            self.add("kid %.20r" % (kid,), self.signed(
                self.head(kid=kid), self.payload), "malformed")
        self.add("kid absent", self.signed(self.head("kid"), self.payload),
                 "malformed")
        self.add("our kid, signed by another", self.signed(
            self.header, self.payload, self.enemy), "bad_signature")
        lying = compact({"keys": [jwk(self.enemy_x, kid=self.header["kid"])]})
        self.add("a key set that lies about a kid", self.signed(
            self.header, self.payload, self.enemy), "unknown_key", lying)
        self.add("the same, our token", self.token, "unknown_key", lying)
        real = compact({"keys": [jwk(self.enemy_x)]})
        self.add("another's key set and another's token", self.signed(
            self.head(kid=other), self.payload, self.enemy), "valid", real)

    def signatures(self):
        head, body, signature = self.token.split(".")
        raw = unb64(signature)
        text = head + "." + body
        s = int.from_bytes(raw[32:], "little") + ORDER
        for name, value, expect in (
                ("empty", "", "malformed"), ("zero", b64(bytes(64)), "bad_signature"),
                ("63 bytes", b64(raw[:63]), "malformed"),
                ("65 bytes", b64(raw + b"\0"), "malformed"),
                ("twice", signature + signature, "malformed"),
                ("padded", signature + "==", "malformed"),
                ("spare bits", signature[:-1] + chr(ord(signature[-1]) + 1),
                 "malformed"),
                ("the other alphabet", "+" + base64.b64encode(raw).decode()
                 .rstrip("=")[1:], "malformed"),
                ("s plus the order", b64(raw[:32] + s.to_bytes(32, "little")),
                 "bad_signature"),
                ("r negated", b64(raw[:31] + bytes([raw[31] ^ 128]) + raw[32:]),
                 "bad_signature"),
                ("a bit changed", b64(bytes([raw[0] ^ 1]) + raw[1:]),
                 "bad_signature"),
                ("a line end", signature + "\n", "malformed"),
                ("a space in it", signature[:9] + " " + signature[9:],
                 "malformed")):
            self.add("signature: " + name, text + "." + value, expect)
        for name, token in (
                ("empty", ""), ("dots", ".."), ("many dots", "." * 4000),
                ("two parts", text), ("four parts", self.token + "."),
                ("five parts", text + "...."), ("space before", " " + self.token),
                ("line end behind", self.token + "\n"), ("text", "hello"),
                ("Bearer", "Bearer " + self.token),
                ("JSON form", compact({"protected": head, "payload": body,
                                       "signature": signature})),
                ("1 MB", self.token + "A" * 2 ** 20),
                ("percent", "%s%n%s.%s.%s")):
            self.add("token: " + name, token, "malformed")
        later = b64(self.with_text("exp", "253402300799"))
        self.add("a later end under the old signature",
                 head + "." + later + "." + signature, "bad_signature")
        self.add("another license under the old signature",
                 head + "." + b64(compact(self.body(aud="other"))) + "." +
                 signature, "bad_signature")
        # A key of small order verifies this under every text.
        for name, x in (("zero", bytes(32)), ("identity", bytes([1]) + bytes(31)),
                        ("of order 2", bytes([0xec]) + b"\xff" * 30 + b"\x7f"),
                        ("identity, spelled p + 1",
                         bytes([0xee]) + b"\xff" * 30 + b"\x7f"),
                        ("all ones", b"\xff" * 32), ("of 0 bytes", b""),
                        ("of 31 bytes", raw_public(self.key)[:31]),
                        ("of 33 bytes", raw_public(self.key) + b"\0")):
            kid = thumbprint(b64(x))
            forged = (b64(compact(self.head(kid=kid))) + "." + body + "." +
                      b64(bytes([1]) + bytes(63)))
            self.add("a key %s" % name, forged, "unknown_key",
                     compact({"keys": [jwk(b64(x))]}))
            self.add("a key %s, our token" % name, self.token, "unknown_key",
                     compact({"keys": [jwk(b64(x))]}))

    def key_sets(self):
        for name, key in (
                ("kty EC", jwk(self.x, kty="EC")), ("kty absent", {"crv": "Ed25519", "x": self.x}),
                ("crv X25519", jwk(self.x, crv="X25519")),
                ("use enc", jwk(self.x, use="enc")), ("alg ES256", jwk(self.x, alg="ES256")),
                ("key_ops sign", jwk(self.x, key_ops=["sign"])),
                ("a private key", jwk(self.x, d=b64(bytes(range(32))))),
                ("x a number", jwk(5)), ("x padded", jwk(self.x + "=")),
                ("x null", jwk(None)), ("empty", {}),
                ("symmetric", {"kty": "oct", "k": self.x})):
            self.add("key set of one: " + name, self.token, "unknown_key",
                     compact({"keys": [key]}))
        self.add("no keys", self.token, "unknown_key", '{"keys": []}')
        self.add("a good key among bad ones", self.token, "valid", compact(
            {"x": 1, "keys": [{}, {"kty": "RSA", "n": "x"}, jwk(self.x)]}))
        many = [jwk(b64(raw_public(ed25519.Ed25519PrivateKey.generate())))
                for _ in range(17)]
        for text in ("null", "true", "5", '"x"', "[]", "{}", '{"keys": null}',
                     '{"keys": {}}', '{"keys": "x"}', '{"keys": [1]}',
                     '{"keys": [null]}', '{"keys": [[]]}',
                     compact([jwk(self.x)]), compact(jwk(self.x)),
                     compact({"keys": many}),
                     compact({"keys": [jwk(self.x)], "x": "y" * 70000}),
                     '{"keys": ' + "[" * 900 + "]" * 900 + "}"):
            self.add("no JWK Set: %.30s" % text, self.token, "22023", text)

    def payloads(self):
        for member in ("exp", "iat"):
            for text in ("null", '"123"', "true", "-1", "-0", "0", "1.5", "1e19",
                         "1e3", "1.8e9", "1E9", "1800000000.0",
                         "9007199254740993", "9223372036854775807",
                         "9223372036854775808", "18446744073709551616",
                         "-9223372036854775809", "9" * 400, "253402300800",
                         "NaN", "Infinity", "-Infinity", "nan", "0x7fffffff",
                         "01800000000", "+1800000000", "[1800000000]",
                         '{"n":1800000000}', "", "1800000000,", "1_000",
                         "1800000000 1"):
                self.add("%s: %.30s" % (member, text), self.signed(
                    self.header, self.with_text(member, text)), "malformed")
        for member in self.payload:
            if member != "iss":
                self.add(member + " absent", self.signed(
                    self.header, self.body(member)), "malformed")
        self.add("exp before iat", self.signed(self.header, self.body(
            exp=self.payload["iat"] - 1)), "malformed")
        self.add("exp twice", self.signed(
            self.header, self.payload_text[:-1] + ',"exp":253402300799}'),
            "malformed")
        self.add("exp twice, once escaped", self.signed(
            self.header, self.payload_text[:-1] + ',"e\\u0078p":253402300799}'),
            "malformed")
        for member, values in (
                ("aud", (None, 1, [self.payload["aud"]], "", "\u0000", "a\nb",
                         "x" * 256)),
                ("sub", (None, 1, [], "", "\u0001", "x" * 256)),
                ("iss", (None, 1, [], "", "\t")),
                ("seat", (None, 1, "", self.payload["seat"].upper(),
                          self.payload["seat"].replace("-", ""),
                          "{" + self.payload["seat"] + "}",
                          "00000000-0000-0000-0000-000000000000")),
                ("slot", (None, "1", 0, -1, 2, 2 ** 31, 1.0, True, [1])),
                ("nbf", (0, 1, None, "x"))):
            for value in values:
                self.add("%s: %.30r" % (member, value), self.signed(
                    self.header, self.body(**{member: value})), "malformed")
        text = self.payload_text.encode()
        for name, payload in (
                ("empty", b""), ("null", b"null"), ("array", b"[" + text + b"]"),
                ("a string", compact(self.payload_text).encode()),
                ("something behind it", text + b" x"), ("twice", text + text),
                ("a byte order mark", b"\xef\xbb\xbf" + text),
                ("no UTF-8", text.replace(b'"sub":"', b'"sub":"\xff')),
                ("overlong UTF-8", text.replace(b'"sub":"', b'"sub":"\xc1\xa1')),
                ("half a surrogate", text.replace(b'"sub":"', b'"sub":"\\ud800')),
                ("a zero byte", text.replace(b'"sub":"', b'"sub":"\0')),
                ("an escaped zero", text.replace(b'"sub":"', b'"sub":"\\u0000')),
                ("a comment", text[:-1] + b"/**/}"),
                ("a comma too many", text[:-1] + b",}"),
                ("single quotes", text.replace(b'"', b"'")),
                ("deep", text[:-1] + b',"x":' + b"[" * 500 + b"]" * 500 + b"}"),
                ("UTF-16", text.decode().encode("utf-16")),
                ("an open end", text[:-1])):
            self.add("payload: " + name, self.signed(self.header, payload),
                     "malformed")


def main():
    forger = Forger(json.load(sys.stdin))
    forger.controls()
    forger.algorithms()
    forger.headers()
    forger.key_names()
    forger.signatures()
    forger.key_sets()
    forger.payloads()
    json.dump(forger.cases, sys.stdout)


main()
