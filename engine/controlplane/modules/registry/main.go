// Command registry serves images over TLS from a folder of blobs: go-containerregistry's own
// registry, which its command serves without TLS only. Manifests are kept in memory.
package main

import (
	"crypto/tls"
	"flag"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	address := flag.String("address", "127.0.0.1:5443", "where it listens")
	certificate := flag.String("certificate", "", "its certificate, PEM")
	key := flag.String("key", "", "the certificate's key, PEM")
	folder := flag.String("folder", "", "where blobs are kept")
	flag.Parse()
	server := &http.Server{
		Addr: *address,
		Handler: registry.New(
			registry.WithBlobHandler(registry.NewDiskBlobHandler(*folder)),
			registry.WithReferrersSupport(true),
			registry.Logger(log.New(os.Stderr, "", log.LstdFlags)),
		),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13},
		// No HTTP/2: the handler reads one upload at a time, and those that wait would use up what a
		// connection may have under way.
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ReadHeaderTimeout: 10 * time.Second,
	}
	log.Fatal(server.ListenAndServeTLS(*certificate, *key))
}
