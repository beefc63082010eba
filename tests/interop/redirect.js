'use strict';
// node redirect.js ADDRESS QUEUE: connects once and tells how that ended; then goes where it was sent, with a message.

const rhea = require('rhea');
const {redirect_target, say} = require('./servers.js');

const [address, queue] = [process.argv[2], process.argv[3]];
const [host, port] = address.split(':');
const first = rhea.create_container();

first.on('connection_open', context => say({event: 'open', properties: context.connection.properties}));
first.on('connection_close', context => {
    const error = context.connection.remote.close.error;
    say({event: 'connection_close', condition: error.condition, description: error.description, info: error.info});
    follow(redirect_target(error));
});
first.on('connection_error', context => say({event: 'connection_error', condition: context.connection.error.condition}));
first.on('disconnected', () => {});
first.connect({host: host, port: Number(port), reconnect: false});

function follow(target) {
    const second = rhea.create_container();
    second.once('sendable', context => context.sender.send({body: 'followed'}));
    second.on('accepted', context => {
        say({event: 'accepted'});
        context.connection.close();
    });
    second.connect({host: target.host, port: target.port, reconnect: false}).open_sender(queue);
}
