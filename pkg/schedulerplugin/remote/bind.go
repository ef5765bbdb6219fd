package remote

import (
	"context"
	"errors"
	"time"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

// Bind implements schedulerplugin.Backend. The API server may take its time, so the answer is waited for as long as the
// server is there.
func (b *backend) Bind(ctx context.Context, pod *cluster.Pod, node string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- b.bind(ctx, pod.Ref, node) }()
	asked := b.health.clock.Now()
	patience := time.NewTicker(bindPatience)
	defer patience.Stop()
	for {
		select {
		case err := <-answer:
			return err
		case <-patience.C:
			gone := b.health.since(ctx, asked, b.alive)
			asked = b.health.clock.Now()
			if gone == nil {
				continue
			}
			cancel()
			err := <-answer // it may have come by now
			if errors.As(err, new(*reserver.UnknownOutcomeError)) {
				return &schedulerplugin.UnavailableError{Kind: schedulerplugin.Away, Sent: true, Cause: err}
			}
			return err
		}
	}
}

func (b *backend) bind(ctx context.Context, pod ledger.PodRef, node string) error {
	revision, err := b.binding.BindAt(ctx, &extenderv1.ExtenderBindingArgs{
		PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Node: node,
	})
	if err == nil || errors.As(err, new(*reserver.BindError)) {
		b.health.heard()
	}
	b.mirror.Seen(revision)
	if err == nil {
		return nil
	}
	return b.explain(err)
}

// alive asks the server for no more than a sign of life: any answer is one, but that nobody can be served.
func (b *backend) alive(ctx context.Context) error {
	_, err := b.reserving.Revision(ctx)
	if err != nil && errors.As(err, new(*reserver.UnavailableError)) {
		return err
	}
	return nil
}

// explain says in the plugin's own words what a request has met.
func (b *backend) explain(err error) error {
	var refused *reserver.RefusedError
	var unbound *reserver.BindError
	var unknown *reserver.UnknownOutcomeError
	var away *reserver.UnavailableError
	switch {
	case errors.As(err, &unknown):
		return err // also where its last try has found nobody: one before may have been carried out
	case errors.As(err, &refused):
		e := &schedulerplugin.RefusedError{Message: refused.Error(), Revision: refused.Answer.Revision}
		if len(refused.Answer.Rejections) > 0 {
			e.Reason = reasons[refused.Answer.Rejections[0].Reason] // zero for one that only newer servers have
			e.Message = refused.Answer.Rejections[0].Message
		}
		return e
	case errors.As(err, &unbound) && unbound.Revision != 0:
		b.mirror.Seen(unbound.Revision)
		return &schedulerplugin.RefusedError{Reason: reasons[unbound.Reason], Message: unbound.Message, Revision: unbound.Revision}
	case errors.As(err, &away):
		b.health.failed(err)
		return &schedulerplugin.UnavailableError{Kind: schedulerplugin.Away, Cause: err}
	default:
		return err
	}
}

// reasons are the ledger's by their names on the wire.
var reasons = func() map[string]ledger.Reason {
	known := map[string]ledger.Reason{}
	for r := ledger.NodeUnknown; r <= ledger.GangWaits; r++ {
		known[r.String()] = r
	}
	return known
}()
