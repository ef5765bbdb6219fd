package httpjson

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/julienschmidt/httprouter"
)

// maxEcho bounds, in bytes, how much of a client's input an error message repeats.
const maxEcho = 100

// Error is a refusal of a request, made for the client: Status is the HTTP status to answer with
// (4xx or 5xx) and Message says what was wrong and what to do about it.
type Error struct {
	Status  int
	Message string
}

// Error returns the message alone; the status travels beside it.
func (e *Error) Error() string { return e.Message }

// Errorf makes an *Error. Input of the client that goes into the message is to be passed through Clip first.
func Errorf(status int, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

// ErrorBody is the JSON body of every answer that WriteError writes. The field is named Error, as
// in the answers of the extender protocol, so that one reader finds the text in both.
type ErrorBody struct {
	Error  string
	Status int
}

// Clip makes input of a client fit for an error message or a log line: at most 100 bytes of it,
// with control characters, quotes and invalid UTF-8 escaped.
func Clip(s string) string {
	cut := len(s) > maxEcho
	if cut {
		s = strings.ToValidUTF8(s[:maxEcho], "")
	}
	s = strconv.Quote(s)
	s = s[1 : len(s)-1]
	if cut {
		s += "..."
	}
	return s
}

// WriteError answers with err as an ErrorBody: with the status of the *Error in its chain, or with
// 500 when there is none. A 429 or 503 has a Retry-After of one second, unless the header is set already.
func WriteError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var e *Error
	if errors.As(err, &e) && e.Status >= http.StatusBadRequest && e.Status <= 599 {
		status = e.Status
	}
	if h := w.Header(); (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) &&
		h.Get("Retry-After") == "" {
		h.Set("Retry-After", "1")
	}
	Write(w, status, ErrorBody{Error: err.Error(), Status: status})
}

// NewRouter returns a router that answers in JSON what nothing is registered for.
func NewRouter() *httprouter.Router {
	router := httprouter.New()
	router.HandleOPTIONS = false
	router.NotFound = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, Errorf(http.StatusNotFound,
			"nothing is served at \"%s\": GET /openapi.yaml lists the routes", Clip(r.URL.Path)))
	})
	router.MethodNotAllowed = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The router names OPTIONS all the same.
		allowed := strings.TrimPrefix(strings.ReplaceAll(w.Header().Get("Allow"), ", OPTIONS", ""), "OPTIONS, ")
		w.Header().Set("Allow", allowed)
		WriteError(w, Errorf(http.StatusMethodNotAllowed,
			"method %s is not allowed on \"%s\": use %s", Clip(r.Method), Clip(r.URL.Path), allowed))
	})
	return router
}
