package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

var errDeviceIDs = errors.New("deviceIDs are written by the server into the Reservations it makes: ask for certain " +
	"devices by extendedResourceNames")

// setDevices writes into the ledger's slots, one for each slot of an object, which devices they are to keep. An error
// says what can never be met.
func setDevices(slots []ledger.Slot, rsv *v1alpha1.Reservation) error {
	slotOf := map[string]string{} // by claim
	for i := range rsv.Spec.Slots {
		slot := &rsv.Spec.Slots[i]
		if len(slot.Devices) == 0 {
			continue
		}
		request, err := deviceRequest(rsv, slot)
		if err != nil {
			return fmt.Errorf("slot %s: %w", slot.Name, err)
		}
		for _, claim := range request.Claims {
			other, taken := slotOf[claim.Name]
			switch {
			case claim.Name == "" || !taken:
			case other == slot.Name:
				return fmt.Errorf("slot %s: claim %s is named twice: name it once, and keep more devices by its count", slot.Name,
					claim.Name)
			default:
				return fmt.Errorf("slot %s: claim %s is that of slot %s already, and serves one pod at a time", slot.Name,
					claim.Name, other)
			}
			slotOf[claim.Name] = slot.Name
		}
		slots[i].Devices = request
	}
	return nil
}

func deviceRequest(rsv *v1alpha1.Reservation, slot *v1alpha1.Slot) (*ledger.DeviceRequest, error) {
	request := &ledger.DeviceRequest{}
	for k := range slot.Devices {
		d := &slot.Devices[k]
		compiled, err := devices.CompileSlot(field.NewPath("devices").Index(k), d)
		if err != nil {
			return nil, err
		}
		if len(d.DeviceIDs) > 0 && !MadeByServer(rsv) {
			return nil, errDeviceIDs
		}
		claim := ledger.DeviceClaimRef{}
		if d.ClaimName != "" {
			claim = ledger.DeviceClaimRef{Namespace: rsv.Namespace, Name: d.ClaimName}
		}
		request.Claims = append(request.Claims, claim)
		request.Requests = append(request.Requests, compiled)
	}
	return request, nil
}

// setGiven writes into a slot that was granted which devices it had: those of the status, and before there is one,
// those the server wrote when it made the object.
func setGiven(h *ledger.Slot, slot *v1alpha1.Slot, status *v1alpha1.SlotStatus) {
	if h.Devices == nil {
		return
	}
	if status != nil && len(status.Devices) > 0 {
		h.Devices.Given = strings.Join(status.Devices, ",")
		return
	}
	var ids []string
	for k := range slot.Devices {
		ids = append(ids, slot.Devices[k].DeviceIDs...)
	}
	h.Devices.Given = strings.Join(ids, ",")
}

// DeviceIDs lists what a slot was given as the status of its slot does.
func DeviceIDs(given []ledger.GivenDevices) []string {
	var ids []string
	for i := range given {
		ids = append(ids, given[i].IDs...)
	}
	return ids
}

// WithGiven returns what a slot asks for with what it was given, so that it is given the same again.
func WithGiven(r *ledger.DeviceRequest, given []ledger.GivenDevices) *ledger.DeviceRequest {
	if r == nil {
		return nil
	}
	same := *r
	same.Given = strings.Join(DeviceIDs(given), ",")
	return &same
}

// KeepDevices writes the devices that a slot was given into the slot made of it.
func KeepDevices(slot *v1alpha1.Slot, given []ledger.GivenDevices) {
	for k := range slot.Devices {
		if k < len(given) {
			slot.Devices[k].DeviceIDs = slices.Clone(given[k].IDs)
		}
	}
}

// slotDevices writes what a slot asks for, and was given as far as that is known, as its slot does.
func slotDevices(r *ledger.DeviceRequest) []v1alpha1.SlotDevices {
	if r == nil {
		return nil
	}
	list := make([]v1alpha1.SlotDevices, len(r.Requests))
	ids := strings.FieldsFunc(r.Given, func(c rune) bool { return c == ',' })
	for k, request := range r.Requests {
		spec := request.Spec()
		list[k] = v1alpha1.SlotDevices{
			ResourceName: spec.ResourceName, Count: spec.Count, ExtendedResourceNames: slices.Clone(spec.ExtendedResourceNames),
		}
		if k < len(r.Claims) {
			list[k].ClaimName = r.Claims[k].Name
		}
		list[k].DeviceIDs, ids = split(ids, request.Count())
		if spec.Selector == nil {
			continue
		}
		list[k].MatchProperties = spec.Selector.MatchProperties
		for _, e := range spec.Selector.MatchExpressions {
			list[k].MatchExpressions = append(list[k].MatchExpressions, v1alpha1.SlotDeviceRequirement(e))
		}
	}
	return list
}

// split takes the first IDs off a list, nil where there are fewer.
func split(ids []string, count int) (first, rest []string) {
	if len(ids) < count {
		return nil, nil
	}
	return slices.Clone(ids[:count]), ids[count:]
}
