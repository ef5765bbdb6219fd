package httpjson

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"
)

// Each reads the array ('[') or object ('{') that dec is at, and calls element before each of its
// elements or members. More than most are refused before they are read: a few bytes of JSON can
// stand for a large Go value. null has none, and is not present.
func Each(dec *jsontext.Decoder, kind jsontext.Kind, most int, element func() error) (present bool, err error) {
	token, err := dec.ReadToken()
	if err != nil || token.Kind() == 'n' {
		return false, err
	}
	if token.Kind() != kind {
		return false, fmt.Errorf("got %s, want %s", kindName(token.Kind()), kindName(kind))
	}
	for i := 0; dec.PeekKind() != kind+2; i++ { // both kinds of brackets are two apart
		if i == most {
			return true, fmt.Errorf("the %s has more than the limit of %d elements", strings.Fields(kindName(kind))[1], most)
		}
		if err := element(); err != nil {
			return true, err
		}
	}
	_, err = dec.ReadToken()
	return true, err
}

// Slice decodes an array of at most so many elements; null is nil.
func Slice[T any](dec *jsontext.Decoder, most int) ([]T, error) {
	list := []T{}
	present, err := Each(dec, '[', most, func() error {
		list = append(list, *new(T))
		return json.UnmarshalDecode(dec, &list[len(list)-1])
	})
	if !present {
		return nil, err
	}
	return list, err
}

// freeBody is the length of bodies in bytes that need no turn: all connections of the server
// together cannot fill its memory with them.
const freeBody = 64 << 10

// Turns bounds what requests take of something, such as memory, at one time.
type Turns struct {
	size int64
	wait time.Duration
	free *semaphore.Weighted
}

// NewTurns returns turns at size units, each of which is waited for no longer than wait.
func NewTurns(size int64, wait time.Duration) *Turns {
	return &Turns{size: size, wait: wait, free: semaphore.NewWeighted(size)}
}

// Take waits for n units, or all there are where n is more. release gives them back; the error is
// a 503.
func (t *Turns) Take(ctx context.Context, n int64) (release func(), err error) {
	n = min(n, t.size)
	if !t.free.TryAcquire(n) {
		ctx, cancel := context.WithTimeout(ctx, t.wait)
		defer cancel()
		if t.free.Acquire(ctx, n) != nil {
			return nil, Errorf(http.StatusServiceUnavailable, "the server is busy with other large requests: try again in a few seconds")
		}
	}
	return func() { t.free.Release(n) }, nil
}

// TakeBody waits for as many units as a request's body has bytes, and as limit where that is not
// known. Short bodies do not wait.
func (t *Turns) TakeBody(r *http.Request, limit int64) (release func(), err error) {
	switch size := r.ContentLength; {
	case size < 0 || size > limit:
		return t.Take(r.Context(), limit)
	case size > freeBody:
		return t.Take(r.Context(), size)
	default:
		return func() {}, nil
	}
}
