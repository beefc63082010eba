'use strict';
// node sender.js ADDRESSES QUEUE COUNT: sends 1..COUNT, again what was lost, and tells what was accepted.

const rhea = require('rhea');
const {connect, say} = require('./servers.js');

const [addresses, queue, count] = [process.argv[2], process.argv[3], Number(process.argv[4])];
const WINDOW = 20;
const pending = new Map();
const accepted = new Set();
let again = [];
let last = 0;

const {container, connection} = connect(rhea, addresses);
const sender = connection.open_sender({target: {address: queue}, autosettle: true});

function work() {
    while (sender.sendable() && pending.size < WINDOW && (again.length > 0 || last < count)) {
        const number = again.length > 0 ? again.shift() : ++last;
        pending.set(sender.send({message_id: number, body: number}), number);
    }
}

container.on('disconnected', () => {
    again = again.concat([...pending.values()]).sort((a, b) => a - b);
    pending.clear();
});
container.on('accepted', context => {
    const number = pending.get(context.delivery);
    if (number === undefined) return;
    pending.delete(context.delivery);
    accepted.add(number);
    say({event: 'accepted', number: number});
    if (accepted.size === count) {
        clearInterval(pace);
        connection.close();
    }
});
container.on('rejected', context => say({event: 'rejected', error: context.delivery.remote_state.error}));
container.on('released', () => say({event: 'released'}));
const pace = setInterval(work, 5);
