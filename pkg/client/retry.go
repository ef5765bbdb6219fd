package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// request is one thing to ask, in as many tries as it takes.
type request struct {
	method, path string
	query        url.Values
	body         any    // nil for none
	id           string // its RequestID, where it has one
	// writes: it may change something, so that one that is not answered is of unknown outcome.
	writes bool
}

// call asks until there is an answer, or an error that no repeat will change.
// check, which may be nil, returns an error for an answer that is none.
func call[A any](ctx context.Context, c *Client, r *request, check func(*A) error) (*A, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, &reserver.BadRequestError{Message: fmt.Sprintf("the request cannot be written as JSON: %s", err)}
		}
	}
	deadline := c.options.Clock.Now().Add(c.options.RetryFor)
	lost := false // a try before may have been carried out
	for pause := newBackoff(); ; {
		answer := new(A)
		after, err := c.try(ctx, r, body, answer)
		if err == nil && check != nil {
			err = check(answer)
		}
		if err == nil {
			return answer, nil
		}
		var told *reserver.UnknownOutcomeError
		var away *reserver.UnavailableError
		unknown := errors.As(err, &told)
		lost = lost || unknown
		if unknown || (errors.As(err, &away) && !away.Permanent) {
			stopped := c.again(ctx, r, err, max(pause.Step(), after), deadline)
			if stopped == nil {
				continue
			}
			err = fmt.Errorf("%w (%w)", err, stopped)
		}
		if lost && !unknown {
			err = &reserver.UnknownOutcomeError{RequestID: r.id, Err: err}
		}
		return nil, err
	}
}

var errOutOfTime = errors.New("no time is left for another try")

// again waits for the next try, unless ctx ends or that would take beyond deadline: then it returns why not.
func (c *Client) again(ctx context.Context, r *request, why error, d time.Duration, deadline time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.options.Clock.Now().Add(d).After(deadline) {
		return errOutOfTime
	}
	if c.options.OnRetry != nil {
		c.options.OnRetry(r.path, why, d)
	}
	c.pause(ctx, d)
	return ctx.Err()
}

// pause waits, unless ctx ends.
func (c *Client) pause(ctx context.Context, d time.Duration) {
	timer := c.options.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// newBackoff is of pauses that double: each is between half of what it stands for and one and a half times that.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: firstPause / 2, Factor: 2, Jitter: 2, Steps: math.MaxInt, Cap: longestPause / 2}
}
