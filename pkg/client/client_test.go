package client_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// serve runs a server of h until the test ends.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server
}

// A refusal to answer after a lost answer does not say that nothing was done.
func TestUnknownStaysUnknown(t *testing.T) {
	for name, status := range map[string]int{"away": 503, "unauthorized": 401, "bad": 400} {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int64
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tries.Add(1) == 1 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(status)
			})
			c := newClient(t, client.Options{URL: server.URL, RetryFor: 300 * time.Millisecond})
			_, err := c.Reserve(t.Context(), ask(aPod("a", "1")))
			var unknown *reserver.UnknownOutcomeError
			require.ErrorAs(t, err, &unknown)
			assert.NotEmpty(t, unknown.RequestID)
		})
	}
}

func TestNobodyListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	c := newClient(t, client.Options{URL: "http://" + listener.Addr().String(), RetryFor: 200 * time.Millisecond})
	_, err = c.Reserve(t.Context(), ask(aPod("a", "1")))
	var away *reserver.UnavailableError
	require.ErrorAs(t, err, &away)
	var unknown *reserver.UnknownOutcomeError
	require.NotErrorAs(t, err, &unknown, "nothing was sent")
}

func TestAnswersThatAreNone(t *testing.T) {
	away, unknown := new(*reserver.UnavailableError), new(*reserver.UnknownOutcomeError)
	unauthorized, bad := new(*reserver.UnauthorizedError), new(*reserver.BadRequestError)
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	cases := map[string]struct {
		handler http.HandlerFunc
		want    any
		text    string
	}{
		"not ready":          {answer(200, `{"Error":"not read yet","FailedPods":[]}`), away, "not read yet"},
		"busy":               {answer(503, `{"Error":"busy","Status":503}`), away, "busy"},
		"too many":           {answer(429, ""), away, "429"},
		"body came too late": {answer(408, ""), away, "408"},
		"panic":              {answer(500, `{"Error":"panic"}`), unknown, "panic"},
		"bad gateway":        {answer(502, "<html>"), unknown, "<html>"},
		"gateway timeout":    {answer(504, ""), unknown, "504"},
		"redirect":           {answer(302, ""), unknown, "302"},
		"empty object":       {answer(200, "{}"), unknown, "not one of GlobalReserve"},
		"no JSON":            {answer(200, "<html>"), unknown, "not one of GlobalReserve"},
		"too long":           {answer(200, strings.Repeat(" ", 2000)), unknown, "longer than 1000 bytes"},
		"unauthorized":       {answer(401, `{"Error":"who are you"}`), unauthorized, "who are you"},
		"forbidden":          {answer(403, ""), unauthorized, "403"},
		"bad":                {answer(400, `{"Error":"send a pod"}`), bad, "send a pod"},
		"not found":          {answer(404, ""), bad, "404"},
		"TLS expected": {
			answer(400, "Client sent an HTTP request to an HTTPS server.\n"), bad,
			"begin the server's URL with https://",
		},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, unknown, "reading the answer"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, client.Options{URL: serve(t, tc.handler).URL, RetryFor: time.Millisecond, MaxAnswer: 1000})
			_, err := c.Reserve(t.Context(), ask(aPod("a", "1")))
			require.ErrorContains(t, err, tc.text)
			require.ErrorAs(t, err, tc.want)
			if tc.want != unknown {
				require.NotErrorAs(t, err, unknown)
			}
			_, err = c.Revision(t.Context())
			require.NotErrorAs(t, err, unknown, "a read changes nothing")
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for name, first := range map[string]func(http.ResponseWriter){
		"busy": func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"not ready": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"Error":"not read yet","FailedPods":[]}`)
		},
	} {
		t.Run(name, func(t *testing.T) { testRetryAfter(t, first) })
	}
}

func testRetryAfter(t *testing.T, first func(http.ResponseWriter)) {
	var tries atomic.Int64
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) == 1 {
			w.Header().Set("Retry-After", "5")
			first(w)
			return
		}
		_, _ = io.WriteString(w, `{"Revision":7}`)
	})
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	c := newClient(t, client.Options{URL: server.URL, Clock: clock})
	var revision uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer, err := c.Reserve(t.Context(), ask(aPod("a", "1")))
		if assert.NoError(t, err) {
			revision = answer.Revision
		}
	}()
	require.Eventually(t, clock.HasWaiters, eventually, time.Millisecond)
	clock.Step(4 * time.Second)
	assert.True(t, clock.HasWaiters(), "it waits for as long as it was asked to")
	clock.Step(time.Second)
	<-done
	assert.EqualValues(t, 7, revision)
	assert.EqualValues(t, 2, tries.Load())
}

func TestContextEndsBeforeTheAnswer(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	server := serve(t, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	})
	defer close(release)
	c := newClient(t, client.Options{URL: server.URL})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := c.Reserve(ctx, ask(aPod("a", "1")))
	require.ErrorAs(t, err, new(*reserver.UnknownOutcomeError))
	require.ErrorIs(t, err, context.Canceled)
}

func TestBind(t *testing.T) {
	cases := map[string]struct {
		answer string
		want   any // nil: no error
	}{
		"bound":     {`{"Error":""}`, nil},
		"refused":   {`{"Error":"no capacity","Outcome":"refused"}`, new(*reserver.BindError)},
		"gone":      {`{"Error":"gone","Outcome":"pod_gone"}`, new(*reserver.BindError)},
		"not one":   {`{}`, new(*reserver.UnknownOutcomeError)},
		"unknown":   {`{"Error":"not known","Outcome":"unknown"}`, new(*reserver.UnknownOutcomeError)},
		"busy":      {`{"Error":"busy","Outcome":"busy"}`, new(*reserver.UnavailableError)},
		"not ready": {`{"Error":"not yet","Outcome":"not_ready"}`, new(*reserver.UnavailableError)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got extenderv1.ExtenderBindingArgs
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "/prefix/bind", r.URL.Path)
				assert.NoError(t, json.NewDecoder(r.Body).Decode(&got))
				_, _ = io.WriteString(w, tc.answer)
			})
			c := newClient(t, client.Options{URL: server.URL + "/prefix/", RetryFor: time.Millisecond})
			args := extenderv1.ExtenderBindingArgs{PodNamespace: "n", PodName: "p", PodUID: "u", Node: "node-1"}
			err := c.Bind(t.Context(), &args)
			assert.Equal(t, args, got)
			if tc.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, tc.want)
		})
	}
}

// A server that has not seen a pod goes by the copy it is sent: the annotations name the pod's device
// allocations and the reservations it may use.
func TestAnnotationsAreSent(t *testing.T) {
	var got reserver.Request
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&got))
		_, _ = io.WriteString(w, `{"FailedPods":[],"Revision":7}`)
	})
	c := newClient(t, client.Options{URL: server.URL})
	pod := aPod("a", "1")
	pod.Annotations = map[string]string{
		"globalreserve.io/extended-resource-claims": "gpu-claim",
		"globalreserve.io/reservation-index":        "team",
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	for name, send := range map[string]func() error{
		"Reserve": func() error { _, err := c.Reserve(t.Context(), ask(pod)); return err },
		"WhatIf": func() error {
			_, err := c.WhatIf(t.Context(), &reserver.WhatIfRequest{Request: *ask(pod)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, send())
			require.Len(t, got.Pods, 1)
			assert.Equal(t, pod.Annotations, got.Pods[0].Annotations)
			assert.Empty(t, got.Pods[0].ManagedFields)
			assert.Len(t, pod.ManagedFields, 1, "the caller's own pod stays as it is")
		})
	}
}

func TestOptions(t *testing.T) {
	cases := map[string]struct {
		options client.Options
		want    string
	}{
		"no URL":              {client.Options{}, "is not the URL of a server"},
		"no scheme":           {client.Options{URL: "127.0.0.1:23456"}, "is not the URL of a server"},
		"query":               {client.Options{URL: "http://a/?x=1"}, "leave the rest out"},
		"key alone":           {client.Options{URL: "https://a", KeyFile: "k"}, "belong together"},
		"CA without TLS":      {client.Options{URL: "http://a", CAFile: "c"}, "are for https"},
		"negative":            {client.Options{URL: "http://a", Timeout: -1}, "negative"},
		"no such authorities": {client.Options{URL: "https://a", CAFile: "/does/not/exist"}, "no such file"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := client.New(tc.options)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// A list is read to its end, page by page, with what was asked for in the first place.
func TestPages(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "production", r.URL.Query().Get("namespace"))
		switch r.URL.Query().Get("continue") {
		case "":
			_, _ = io.WriteString(w, `{"Revision":7,"Allocations":[{"Pod":"a"},{"Pod":"b"}],"Continue":"more"}`)
		case "more":
			_, _ = io.WriteString(w, `{"Revision":8,"Allocations":[{"Pod":"c"}]}`)
		}
	})
	answer, err := newClient(t, client.Options{URL: server.URL}).
		Allocations(t.Context(), url.Values{"namespace": {"production"}})
	require.NoError(t, err)
	assert.Equal(t, &reserver.AllocationsAnswer{Revision: 7, Allocations: []reserver.Allocation{
		{Pod: "a"},
		{Pod: "b"},
		{Pod: "c"},
	}}, answer)
}

// Who begins at a page gets the rest, and not that page for ever.
func TestPagesFromOne(t *testing.T) {
	asked := 0
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch asked++; {
		case r.URL.Query().Get("continue") == "a" && asked < 10:
			_, _ = io.WriteString(w, `{"Reservations":[{"Name":"b"}],"Continue":"b"}`)
		default:
			_, _ = io.WriteString(w, `{"Reservations":[{"Name":"c"}]}`)
		}
	})
	answer, err := newClient(t, client.Options{URL: server.URL}).Reservations(t.Context(), url.Values{"continue": {"a"}})
	require.NoError(t, err)
	assert.Equal(t, []reserver.Reservation{{Name: "b"}, {Name: "c"}}, answer.Reservations)
}

// A scheduler binds each pod in a goroutine of its own. The connections of as many binds as are under way at one time
// are kept for the next ones: 25 of 5 ms each are 5,000 pods a second.
func TestConnectionsOfBindsAreKept(t *testing.T) {
	const parallel, most = 25, 100
	var turn atomic.Pointer[sync.WaitGroup] // until all of a round are under way
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		turn.Load().Done()
		turn.Load().Wait()
		assert.NoError(t, json.NewEncoder(w).Encode(&reserver.BindAnswer{}))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c := newClient(t, client.Options{URL: server.URL})
	round := func() int64 {
		before := opened.Load()
		all := &sync.WaitGroup{}
		all.Add(parallel)
		turn.Store(all)
		var binds sync.WaitGroup
		for i := range parallel {
			binds.Add(1)
			go func() {
				defer binds.Done()
				assert.NoError(t, c.Bind(t.Context(), &extenderv1.ExtenderBindingArgs{PodNamespace: "ns", PodName: "p" +
					strconv.Itoa(i), PodUID: "u", Node: "n"}))
			}()
		}
		binds.Wait()
		return opened.Load() - before
	}
	round()
	// Not all are kept each time: the transport gives up a connection of which it does not learn in time that the request
	// is written. With as few as http.Transport keeps, 23 would be opened in each round.
	rounds := 1
	for round() >= parallel/2 && rounds < most {
		rounds++
	}
	assert.Less(t, rounds, most)
}
