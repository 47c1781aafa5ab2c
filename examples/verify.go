// Verifies a lease with Go's standard library (1.19 or later).
//
//	go run verify.go JWKS-FILE TOKEN-FILE LICENSE
//
// Prints the claims and exits with 0, or says why not and exits with 1.
package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

type JWKS struct {
	Keys []struct{ Kty, Crv, Kid, X string }
}

type Claims struct {
	Iss, Aud, Sub, Seat string
	Slot                int32
	Iat, Exp            int64
}

// Decodes a part of a token; only the one strict spelling.
func read(part string, into any) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func (jwks *JWKS) find(kid string) (ed25519.PublicKey, error) {
	for _, key := range jwks.Keys {
		if key.Kid != kid || key.Kty != "OKP" || key.Crv != "Ed25519" {
			continue
		}
		x, err := base64.RawURLEncoding.Strict().DecodeString(key.X)
		if err != nil || len(x) != ed25519.PublicKeySize {
			return nil, errors.New("bad key")
		}
		return x, nil
	}
	return nil, errors.New("no such key: is the JWK Set too old?")
}

func verify(token string, jwks *JWKS, license string, now time.Time) (*Claims, error) {
	var header struct{ Alg, Typ, Kid string }
	var claims Claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errors.New("not three parts")
	}
	if err := read(parts[0], &header); err != nil {
		return nil, err
	}
	if header.Alg != "EdDSA" || header.Typ != "keyright-lease+jwt" {
		return nil, errors.New("not a lease")
	}
	key, err := jwks.find(header.Kid)
	if err != nil {
		return nil, err
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil || !ed25519.Verify(key, []byte(parts[0]+"."+parts[1]), signature) {
		return nil, errors.New("bad signature")
	}
	if err := read(parts[1], &claims); err != nil {
		return nil, err
	}
	if claims.Aud != license {
		return nil, errors.New("another license")
	}
	if now.Unix() >= claims.Exp {
		return nil, errors.New("its time is over")
	}
	return &claims, nil
}

func run(jwksFile, tokenFile, license string) error {
	var jwks JWKS
	text, err := os.ReadFile(jwksFile)
	if err == nil {
		err = json.Unmarshal(text, &jwks)
	}
	if err != nil {
		return err
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return err
	}
	claims, err := verify(strings.TrimSpace(string(token)), &jwks, license, time.Now())
	if err == nil {
		fmt.Printf("%+v\n", *claims)
	}
	return err
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "refused:", err)
		os.Exit(1)
	}
}
