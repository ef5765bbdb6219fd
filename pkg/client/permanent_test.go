package client_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// What no repeat mends is reported after one try, and what would mend it.
func TestWhatCannotHealFailsAtOnce(t *testing.T) {
	says := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"Revision":7}`) }
	certificate, own, _ := newCertificate(t, "127.0.0.1")
	secure := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{certificate}}, nil)
	plain := serve(t, says)
	redirects := serve(t, http.RedirectHandler("https://ledger.example.com/", http.StatusPermanentRedirect).ServeHTTP)
	_, port, err := net.SplitHostPort(secure.Listener.Addr().String())
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		options client.Options
		want    string
	}{
		"unknown authority": {client.Options{URL: secure.URL}, "CAFile is to have the authority"},
		"another name": {
			client.Options{URL: "https://localhost:" + port, CAFile: own},
			"ServerName is to be a name that the server's certificate has",
		},
		"https to http": {
			client.Options{URL: strings.Replace(plain.URL, "http:", "https:", 1)},
			"begin its URL with http://",
		},
		"http to https": {
			client.Options{URL: strings.Replace(secure.URL, "https:", "http:", 1)},
			"begin the server's URL with https://",
		},
		"redirect":     {client.Options{URL: redirects.URL}, `at "https://ledger.example.com/": give its own URL`},
		"unknown host": {client.Options{URL: "http://ledger..invalid"}, "there is no such host"},
	} {
		t.Run(name, func(t *testing.T) {
			retries := 0
			tc.options.OnRetry = func(string, error, time.Duration) { retries++ }
			_, err := newClient(t, tc.options).Reserve(t.Context(), ask(aPod("a", "1")))
			require.ErrorContains(t, err, tc.want)
			assert.Zero(t, retries)
			require.NotErrorAs(t, err, new(*reserver.UnknownOutcomeError), "nothing was sent that could be carried out")
			if away := (*reserver.UnavailableError)(nil); errors.As(err, &away) {
				assert.True(t, away.Permanent)
			} else {
				assert.ErrorAs(t, err, new(*reserver.BadRequestError))
			}
		})
	}
}

// What fails at once before there was an answer may heal after one: names come back, and certificates are renewed.
func TestWhatHasWorkedIsTriedAgain(t *testing.T) {
	own, file, _ := newCertificate(t, "127.0.0.1")
	other, _, _ := newCertificate(t, "127.0.0.1")
	var certificate atomic.Pointer[tls.Certificate]
	certificate.Store(&own)
	server := serveTLS(t, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*certificate.Load()}}, nil
	}}, nil)
	tries := 0
	c := newClient(t, client.Options{URL: server.URL, CAFile: file, OnRetry: func(_ string, why error, _ time.Duration) {
		tries++
		assert.ErrorContains(t, why, "CAFile is to have the authority")
		certificate.Store(&own)
	}})
	_, err := c.Reserve(t.Context(), ask(aPod("a", "1")))
	require.NoError(t, err)
	certificate.Store(&other)
	c.Close()
	_, err = c.Reserve(t.Context(), ask(aPod("b", "1")))
	require.NoError(t, err)
	assert.Equal(t, 1, tries)
}

// A caller that waits for an answer learns meanwhile why it takes long.
func TestOnRetry(t *testing.T) {
	var tries atomic.Int64
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"Error":"no server decides"}`)
			return
		}
		_, _ = io.WriteString(w, `{"Revision":7}`)
	})
	var told []string
	c := newClient(t, client.Options{URL: server.URL, OnRetry: func(path string, why error, pause time.Duration) {
		assert.Positive(t, pause)
		told = append(told, path+": "+why.Error())
	}})
	_, err := c.Reserve(t.Context(), ask(aPod("a", "1")))
	require.NoError(t, err)
	assert.Equal(t, []string{"/reserve: not available: no server decides", "/reserve: not available: no server decides"},
		told)
}
